#include "tools/replay_comparison.h"

#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <set>

#include "base/bytes.h"
#include "tools/command.h"
#include "tools/json_text.h"
#include "tools/progress.h"
#include "tools/run_analysis.h"
#include "tools/version.h"

namespace fragscope::tools {
namespace {

using replay::ReplayFigures;

struct Asked {
  replay::SweepConfig config;
  bool recorded_conf = false;  // `config.alloc_conf` is to be the recorded process's
};

Result<std::string> read_text(const std::string& path) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::kNotFound, path + ": cannot be read"};
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Result<std::vector<Asked>> asked_configs(const ComparisonOptions& options) {
  std::vector<Asked> asked;
  for (const std::string& names : options.as) {
    for (size_t at = 0; at <= names.size();) {
      const size_t end = std::min(names.find(',', at), names.size());
      const std::string name = names.substr(at, end - at);
      const bool has_settings = name.starts_with("torch");
      const std::string conf = has_settings ? options.alloc_conf.value_or("") : "";
      asked.push_back({{name, conf}, has_settings && !options.alloc_conf});
      at = end + 1;
    }
  }
  if (options.sweep_file.empty()) return asked;
  const auto text = read_text(options.sweep_file);
  if (!text) return text.error();
  const std::string name = options.sweep_file == "-" ? "stdin" : options.sweep_file;
  auto configs = replay::parse_sweep(*text, name);
  if (!configs) return configs.error();
  for (replay::SweepConfig& config : *configs) asked.push_back({std::move(config), false});
  return asked;
}

// Says once for each that a release is newer than the rules.
void warn_of_newer(const std::vector<Asked>& asked) {
  std::set<std::string> said;
  for (const Asked& each : asked) {
    const std::string& name = each.config.backend;
    if (!name.starts_with("torch-") || !said.insert(name).second) continue;
    const auto match = model::asked_version_profile(std::string_view(name).substr(6));
    if (match && !match->exact) {
      warn("no rules for " + name + " yet, using those of torch " +
           std::string(match->profile->name));
    }
  }
}

using Backends = std::vector<std::unique_ptr<replay::Backend>>;

Result<Backends> backends_for(const std::vector<Asked>& asked, const std::string& version,
                              const std::string& recorded_conf) {
  Backends backends;
  for (const Asked& each : asked) {
    const std::string& conf = each.recorded_conf ? recorded_conf : each.config.alloc_conf;
    auto backend = replay::parse_backend(each.config.backend, conf, version);
    if (!backend) {
      const std::string where =
          conf.empty() ? std::string("--as") : each.config.backend + " with '" + conf + "'";
      return Error{backend.error().code, where + ": " + backend.error().text};
    }
    backends.push_back(std::move(backend).value());
  }
  return backends;
}

std::optional<double> fragmentation(const ReplayFigures& figures) {
  if (figures.reserved.peak == 0) return std::nullopt;
  const uint64_t used = std::min(figures.allocated.peak, figures.reserved.peak);
  return static_cast<double>(figures.reserved.peak - used) /
         static_cast<double>(figures.reserved.peak);
}

Json figures_json(const ReplayFigures& figures) {
  const auto level = [](const replay::Level& value) {
    return Json{{"peak", value.peak}, {"final", value.final}};
  };
  const auto share = fragmentation(figures);
  return {{"reserved_bytes", level(figures.reserved)},
          {"allocated_bytes", level(figures.allocated)},
          {"requested_bytes", figures.requested ? level(*figures.requested) : Json(nullptr)},
          {"segments", level(figures.segments)},
          {"device_mallocs", figures.device_mallocs},
          {"device_frees", figures.device_frees},
          {"alloc_retries", figures.alloc_retries},
          {"ooms", figures.ooms.size()},
          {"fragmentation", share ? Json(*share) : Json(nullptr)}};
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

// One process with everything that was asked of it.
struct Compared {
  replay::ProcessFacts facts;
  replay::RecordedProcess process;
  Backends backends;
  std::vector<replay::SweepRow> rows;
  bool answered() const { return process.modelled || process.undecidable.empty(); }
};

std::string_view mode_of(const Compared& compared) {
  if (compared.process.modelled) return "modelled";
  return compared.answered() ? "what_if" : "undecidable";
}

Json device_json(const Compared& compared, size_t index) {
  const replay::RecordedDevice& device = compared.process.devices[index];
  Json configurations = Json::array();
  for (const replay::SweepRow& row : compared.rows) {
    if (row.device != index) continue;
    const replay::Backend& backend = *compared.backends[row.config];
    Json entry = {{"as", backend.name()}, {"alloc_conf", backend.alloc_conf()}};
    entry.update(figures_json(row.figures));
    entry["ooms_avoided"] = row.ooms_avoided;
    entry["live_peak_bytes"] = row.live_peak ? Json(*row.live_peak) : Json(nullptr);
    entry["fits"] = row.fits && row.figures.ooms.empty();
    configurations.push_back(std::move(entry));
  }
  return {{"index", device.device},
          {"capacity_bytes", device.capacity ? Json(*device.capacity) : Json(nullptr)},
          {"calls", device.calls.calls.size()},
          {"recorded", device.verify ? figures_json(device.figures) : Json(nullptr)},
          {"configurations", std::move(configurations)}};
}

Json process_json(const Compared& compared) {
  Json devices = Json::array();
  for (size_t i = 0; i < compared.process.devices.size(); ++i) {
    devices.push_back(device_json(compared, i));
  }
  return {{"pid", compared.facts.pid == 0 ? Json(nullptr) : Json(compared.facts.pid)},
          {"program", compared.facts.program},
          {"mode", mode_of(compared)},
          {"reason", compared.process.undecidable},
          {"block_source", block_source_name(compared.process.source)},
          {"torch_version", compared.process.rules.profile.name},
          {"alloc_conf", compared.process.rules.conf},
          {"notes", compared.process.assumptions},
          {"devices", std::move(devices)}};
}

void add_row(std::string& text, const std::string& name, const std::string& settings,
             const ReplayFigures& figures, const std::string& note) {
  const auto share = fragmentation(figures);
  text += fmt::format("    {:<11} {:>12} {:>12} {:>9} {:>9} {:>8} {:>5} {:>8}  {}{}{}\n", name,
                      format_size(figures.reserved.peak), format_size(figures.allocated.peak),
                      figures.device_mallocs, figures.device_frees, figures.alloc_retries,
                      figures.ooms.size(), share ? percent(*share) : "–", settings,
                      settings.empty() || note.empty() ? "" : "; ", note);
}

std::string note_of(const replay::SweepRow& row) {
  std::string note;
  if (row.live_peak && *row.live_peak > 0) {
    const double above = static_cast<double>(row.figures.reserved.peak - *row.live_peak) /
                         static_cast<double>(*row.live_peak);
    note =
        fmt::format("{:.2f} % above the live peak of {}", 100 * above, format_size(*row.live_peak));
  }
  if (!row.fits) note += ", more than the device has";
  if (row.ooms_avoided > 0) note += fmt::format("{} recorded OOM(s) avoided", row.ooms_avoided);
  return note;
}

void add_device(std::string& text, const Compared& compared, size_t index) {
  const replay::RecordedDevice& device = compared.process.devices[index];
  text += fmt::format("  Device {}: {} calls, {}\n", device.device, device.calls.calls.size(),
                      device.capacity ? format_size(*device.capacity) + " to be had"
                                      : std::string("no limit known"));
  text += fmt::format("    {:<11} {:>12} {:>12} {:>9} {:>9} {:>8} {:>5} {:>8}  {}\n", "allocator",
                      "reserved", "allocated", "mallocs", "frees", "retries", "OOMs", "fragm.",
                      "settings");
  if (device.verify) {
    add_row(text, "recorded", compared.process.rules.conf, device.figures, "");
  }
  for (const replay::SweepRow& row : compared.rows) {
    if (row.device != index) continue;
    const replay::Backend& backend = *compared.backends[row.config];
    add_row(text, backend.name(), backend.alloc_conf(), row.figures, note_of(row));
  }
}

std::string text_of(const std::vector<Compared>& all) {
  std::string text =
      "Peaks of the same calls under other allocators (fragm.: share of peak "
      "reserved above peak allocated)\n";
  for (const Compared& compared : all) {
    const uint32_t pid = compared.facts.pid;
    text += fmt::format("\nProcess {} {}\n", pid == 0 ? "(pid unknown)" : std::to_string(pid),
                        one_line(compared.facts.program));
    if (!compared.answered()) {
      text += "  undecidable: " + compared.process.undecidable + "\n";
      continue;
    }
    for (size_t i = 0; i < compared.process.devices.size(); ++i) add_device(text, compared, i);
    for (const std::string& note : compared.process.assumptions) text += "  note: " + note + "\n";
  }
  return text;
}

Result<Compared> compare_process(const OpenRun& run, trace::TraceReader& reader,
                                 const ComparisonOptions& options,
                                 const std::vector<Asked>& asked) {
  Compared compared;
  compared.facts = process_facts(run, reader);
  const std::string version =
      options.torch_version.value_or(compared.facts.property("torch_version").value_or(""));
  const std::string conf = recorded_conf(compared.facts, compared.facts.property("torch_version"));
  auto backends = backends_for(asked, version, conf);
  if (!backends) return backends.error();
  compared.backends = std::move(backends).value();
  replay::TraceStream stream(reader);
  replay::ReadSettings settings;
  settings.with_calls = true;
  settings.device_memory = options.device_memory;
  compared.process = read_process(stream, compared.facts, settings);
  if (!compared.answered()) return compared;
  if (compared.process.start_blocks > 0) {
    compared.process.assumptions.push_back(replay::kStartAssumption);
  }
  const size_t runs = compared.backends.size() * compared.process.devices.size();
  Progress progress("replaying", runs);
  compared.rows =
      run_sweep(compared.process, compared.backends, 0, [&](size_t done) { progress.step(done); });
  return compared;
}

}  // namespace

int compare_allocators(OpenRun& run, const ComparisonOptions& options) {
  const auto asked = asked_configs(options);
  if (!asked) return fail(asked.error());
  warn_of_newer(*asked);
  std::vector<Compared> all;
  uint64_t events = 0;
  for (trace::TraceReader& reader : run.processes) {
    auto compared = compare_process(run, reader, options, *asked);
    if (!compared) return fail(compared.error());
    events += reader.process().event_count;
    all.push_back(std::move(compared).value());
  }
  std::string text;
  if (options.json) {
    Json processes = Json::array();
    for (const Compared& compared : all) processes.push_back(process_json(compared));
    const Json document = {{"schema", 1},
                           {"fragscope_version", FRAGSCOPE_VERSION},
                           {"path", run.path},
                           {"processes", std::move(processes)},
                           {"warnings", all_warnings(run)}};
    text = document_text(document);
  } else {
    text = text_of(all);
  }
  const int code = reading_exit_code(run, events);
  const int written = print_output(text);
  return written != kExitOk ? written : code;
}

}  // namespace fragscope::tools
