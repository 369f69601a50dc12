#include "replay/sweep.h"

#include <algorithm>
#include <utility>

#include "replay/parallel.h"

namespace fragscope::replay {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view strip(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// Settings hold a colon, backends do not.
Result<SweepConfig> parse_line(std::string_view line) {
  const auto gap = std::find_if(line.begin(), line.end(), is_space);
  const std::string_view first = line.substr(0, static_cast<size_t>(gap - line.begin()));
  if (first.find(':') != first.npos) return SweepConfig{"torch", std::string(line)};
  SweepConfig config{std::string(first), std::string(strip(line.substr(first.size())))};
  const auto backend = parse_backend(config.backend, "", "");
  if (!backend) return backend.error();
  return config;
}

}  // namespace

Result<std::vector<SweepConfig>> parse_sweep(std::string_view text, const std::string& name) {
  std::vector<SweepConfig> configs;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = strip(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    auto config = parse_line(line);
    if (!config) {
      return Error{ErrorCode::kInvalidArgument,
                   name + ":" + std::to_string(number) + ": " + config.error().text};
    }
    configs.push_back(std::move(config).value());
  }
  if (configs.empty()) {
    return Error{ErrorCode::kInvalidArgument, name + ": no configuration in it"};
  }
  return configs;
}

std::vector<SweepRow> run_sweep(const RecordedProcess& process,
                                std::span<const std::unique_ptr<Backend>> backends,
                                unsigned threads, const std::function<void(size_t)>& progress) {
  std::vector<SweepRow> rows(backends.size() * process.devices.size());
  const auto run_one = [&](size_t i) {
    SweepRow& row = rows[i];
    row.config = i / process.devices.size();
    row.device = i % process.devices.size();
    const RecordedDevice& device = process.devices[row.device];
    BackendRun run = backends[row.config]->run(device.calls, device.backend_device());
    row.figures = std::move(run.figures);
    row.ooms_avoided = run.ooms_avoided;
    row.live_peak = run.live_peak;
    row.fits = run.fits;
  };
  run_in_parallel(rows.size(), threads, run_one, progress);
  return rows;
}

}  // namespace fragscope::replay
