#include "tools/fit_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/bytes.h"
#include "metrics/process_metrics.h"
#include "replay/backend.h"
#include "replay/event_stream.h"
#include "replay/recorded_process.h"
#include "tools/command.h"
#include "tools/run_analysis.h"
#include "tools/subprocess.h"

namespace fragscope::tools {
namespace {

constexpr int kNoCommand = 125;  // and above, up to 127: the command did not run

struct Card {
  std::string name;
  simcuda::SimConfig config;
  int capability() const { return 100 * config.cc_major + config.cc_minor; }
};

// One run of the command, with what a replay needs of it.
struct Recording {
  std::string directory;
  int exit_code = 0;
  simcuda::SimConfig card;
  bool answers = false;  // another card's cell can be replayed from it
  uint64_t ooms = 0;
  std::optional<uint64_t> first_oom;
  std::optional<uint64_t> peak;
  std::optional<uint64_t> capacity;
  std::optional<replay::RecordedProcess> process;  // when `answers`
  size_t device = 0;                               // of it
};

class FitSearch {
 public:
  FitSearch(const FitQuestion& question, const std::function<void(const std::string&)>& told)
      : question_(question), told_(told) {}

  Result<FitAnswer> run() {
    for (const std::string& name : question_.gpus) {
      auto config = simcuda::resolve_gpu(name);
      if (!config.ok()) return config.error();
      cards_.push_back({name, std::move(config).value()});
    }
    std::stable_sort(cards_.begin(), cards_.end(), [](const Card& left, const Card& right) {
      return left.config.total_bytes < right.config.total_bytes;
    });
    for (const Card& card : cards_) {
      for (const std::string& settings : question_.settings) {
        auto row = search_row(card, settings);
        if (!row.ok()) return row.error();
        answer_.rows.push_back(std::move(row).value());
      }
    }
    return std::move(answer_);
  }

 private:
  size_t values() const { return question_.variable ? question_.variable->values.size() : 1; }
  std::string value(size_t index) const {
    return question_.variable ? question_.variable->values[index] : "";
  }

  // The largest value that fits: bisection between the first, which must fit, and the last.
  Result<FitRow> search_row(const Card& card, const std::string& settings) {
    FitRow row;
    row.gpu = card.name;
    row.total_bytes = card.config.total_bytes;
    row.settings = settings;
    std::map<size_t, FitCell> cells;
    size_t low = 0;          // the first index that is not known to fit
    size_t high = values();  // everything from here on does not
    while (low < high) {
      // Upwards first by doubling, then by halves: small values are cheap to run.
      const bool growing = high == values() && !cells.empty() && low > 0;
      const size_t next = cells.empty() ? 0
                          : growing     ? std::min(2 * low, values() - 1)
                                        : low + (high - low) / 2;
      auto cell = cell_of(card, settings, next);
      if (!cell.ok()) return cell.error();
      (cell->fits ? low : high) = cell->fits ? next + 1 : next;
      cells[next] = std::move(cell).value();
    }
    for (auto& [index, cell] : cells) {
      if (cell.fits) row.largest = cell;
      row.cells.push_back(std::move(cell));
    }
    return row;
  }

  Result<FitCell> cell_of(const Card& card, const std::string& settings, size_t index) {
    const Card& reference = largest_alike(card);
    auto recording = recorded(reference, "", index);
    if (!recording.ok()) return recording.error();
    const bool itself = reference.name == card.name && settings.empty();
    if (itself) return told_by_run(**recording, index);
    if ((*recording)->answers) return replayed(**recording, card, settings, index);
    auto own = recorded(card, settings, index);
    if (!own.ok()) return own.error();
    return told_by_run(**own, index);
  }

  const Card& largest_alike(const Card& card) const {
    const Card* largest = &card;
    for (const Card& other : cards_) {
      const bool alike =
          other.capability() == card.capability() && other.config.devices == card.config.devices;
      if (alike && other.config.total_bytes > largest->config.total_bytes) largest = &other;
    }
    return *largest;
  }

  FitCell told_by_run(const Recording& recording, size_t index) const {
    FitCell cell;
    cell.value = value(index);
    cell.fits = recording.exit_code == 0 && recording.ooms == 0;
    cell.exit_code = recording.exit_code;
    cell.ooms = recording.ooms;
    cell.first_oom = recording.first_oom;
    cell.peak = recording.peak;
    cell.capacity = recording.capacity;
    cell.recording = recording.directory;
    return cell;
  }

  Result<FitCell> replayed(const Recording& recording, const Card& card,
                           const std::string& settings, size_t index) {
    const replay::RecordedProcess& process = *recording.process;
    const replay::RecordedDevice& device = process.devices[recording.device];
    const std::string conf = settings.empty() ? process.rules.conf : settings;
    auto backend =
        process.modelled
            ? Result<std::unique_ptr<replay::Backend>>(replay::cuda_backend())
            : replay::parse_backend("torch", conf, std::string(process.rules.profile.name));
    if (!backend.ok()) return backend.error();
    // What is neither the allocator's nor the context's stays as large as it was.
    const uint64_t context = recording.card.context_bytes;
    const uint64_t taken = recording.card.total_bytes - *device.capacity;
    const uint64_t outside = taken - std::min(taken, context) + card.config.context_bytes;
    replay::BackendDevice target = device.backend_device();
    target.capacity = card.config.total_bytes - std::min(card.config.total_bytes, outside);
    target.total_bytes = card.config.total_bytes;
    const replay::BackendRun run = (*backend)->run(device.calls, target);
    ++answer_.replays;
    FitCell cell;
    cell.value = value(index);
    cell.replayed = true;
    cell.exit_code = recording.exit_code;
    cell.ooms = run.figures.ooms.size();
    if (!run.figures.ooms.empty()) cell.first_oom = run.figures.ooms.front().seq;
    cell.fits = recording.exit_code == 0 && cell.ooms == 0;
    cell.peak = run.figures.reserved.peak;
    cell.capacity = target.capacity;
    cell.recording = recording.directory;
    return cell;
  }

  // Runs the command, once for each card, settings and value.
  Result<const Recording*> recorded(const Card& card, const std::string& settings, size_t index) {
    const auto key = std::tuple(card.name, settings, index);
    if (const auto known = recordings_.find(key); known != recordings_.end()) {
      return &known->second;
    }
    std::vector<std::string> command = question_.command;
    if (question_.variable) {
      auto words = with_value(command, question_.variable->name, value(index));
      if (!words.ok()) return words.error();
      command = std::move(words).value();
    }
    Recording recording;
    recording.card = card.config;
    recording.directory = fmt::format("{}/{}.fsr", question_.directory, ++answer_.runs);
    std::vector<std::string> argv = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                     "run",
                                     "-q",
                                     "--gpu",
                                     card.name,
                                     "-o",
                                     recording.directory};
    if (!settings.empty()) {
      argv.insert(argv.end(), {"--enforce", "native", "--alloc-conf", settings});
    }
    argv.push_back("--");
    argv.insert(argv.end(), command.begin(), command.end());
    told_(fmt::format(
        "run {}: {}{}{}", answer_.runs, card.name, settings.empty() ? "" : " " + settings,
        question_.variable ? ", " + question_.variable->name + "=" + value(index) : ""));
    const auto finished = run_helper(argv, own_environment());
    if (!finished.ok()) return finished.error();
    recording.exit_code = finished->exit_code;
    const bool started = finished->exit_code < kNoCommand || finished->exit_code > 127;
    if (!started || !read(recording)) {
      const std::string words = first_line(finished->err);
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("the command recorded nothing on {}: exit code {}{}", card.name,
                               finished->exit_code, words.empty() ? "" : ", " + words)};
    }
    return &recordings_.emplace(key, std::move(recording)).first->second;
  }

  // False: nothing was recorded.
  static bool read(Recording& recording) {
    auto run = open_run(recording.directory);
    if (!run.ok()) return false;
    size_t holders = 0;  // devices of processes that asked for device memory
    for (trace::TraceReader& reader : run->processes) {
      replay::TraceStream stream(reader);
      const replay::ProcessFacts facts = process_facts(*run, reader);
      take_figures(metrics::measure_process(stream, facts), recording, holders);
      if (holders != 1) continue;
      replay::ReadSettings settings;
      settings.with_calls = true;
      settings.with_seqs = true;
      stream.rewind();
      take_process(read_process(stream, facts, settings), recording);
    }
    recording.answers = holders == 1 && recording.process && recording.ooms == 0;
    return holders > 0 || recording.ooms > 0;
  }

  static void take_figures(const metrics::ProcessMetrics& measured, Recording& recording,
                           size_t& holders) {
    for (const auto& [index, device] : measured.devices) {
      recording.ooms += device.ooms.size();
      if (!device.ooms.empty() && !recording.first_oom) {
        recording.first_oom = device.ooms.front().seq;
      }
      const auto peak = device.heap && device.heap->reserved.peak ? device.heap->reserved.peak
                                                                  : device.driver.peak;
      if (peak.value_or(0) == 0) continue;
      ++holders;
      recording.peak = std::max(recording.peak.value_or(0), *peak);
    }
    // Without an allocator that tells, a refusal of CUDA's is what counts.
    if (measured.source == replay::BlockSource::none) recording.ooms += measured.failed_calls;
  }

  static void take_process(replay::RecordedProcess process, Recording& recording) {
    if (!process.modelled && !process.undecidable.empty()) return;
    for (size_t i = 0; i < process.devices.size(); ++i) {
      if (process.devices[i].calls.calls.empty() || !process.devices[i].capacity) continue;
      recording.device = i;
      recording.capacity = process.devices[i].capacity;
      recording.process = std::move(process);
      return;
    }
  }

  const FitQuestion& question_;
  const std::function<void(const std::string&)>& told_;
  std::vector<Card> cards_;  // by size
  std::map<std::tuple<std::string, std::string, size_t>, Recording> recordings_;
  FitAnswer answer_;
};

}  // namespace

Result<FitAnswer> search_fit(const FitQuestion& question,
                             const std::function<void(const std::string&)>& told) {
  return FitSearch(question, told).run();
}

}  // namespace fragscope::tools
