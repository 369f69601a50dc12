#include "tools/run_summary.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "metrics/process_metrics.h"
#include "replay/event_stream.h"
#include "tools/command.h"
#include "tools/open_run.h"
#include "tools/run_analysis.h"

namespace fragscope::tools {
namespace {

constexpr int32_t kOutOfMemory = 2;  // cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY
constexpr uint64_t kReadInPassing = 2'000'000;  // events: about a second

std::string plural(uint64_t count, const std::string& what, const std::string& ending = "s") {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : ending);
}

std::string peak_text(const metrics::DeviceMetrics& device) {
  std::string text;
  const auto add = [&](const std::optional<uint64_t>& bytes, const char* of) {
    if (!bytes) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", format_size(*bytes), of);
  };
  add(device.driver.peak, "of CUDA");
  if (device.heap) {
    add(device.heap->reserved.peak, "reserved");
    add(device.heap->allocated.peak, "allocated by blocks");
  }
  return text;
}

// The highest levels of each device; nothing when a run is too long to be read in passing. True if
// memory ran out.
bool say_peaks(const std::string& directory, uint64_t events) {
  if (events > kReadInPassing) return false;
  auto run = open_run(directory);
  if (!run.ok()) return false;
  bool refused = false;
  measure_run(*run, [&](const MeasuredProcess& process) {
    for (const auto& [index, device] : process.measured.devices) {
      refused = refused || (!device.ooms.empty());
      const std::string peaks = peak_text(device);
      if (!peaks.empty()) {
        say(fmt::format("peaks of process {} on device {}: {}", process.facts.pid, index, peaks));
      }
    }
    for (const auto& call : process.measured.failures) {
      refused = refused || (call.result == kOutOfMemory && !call.probe);
    }
  });
  return refused;
}

}  // namespace

void print_run_summary(const RunOutcome& outcome) {
  const capture::Summary& summary = outcome.summary;
  for (const std::string& line : summary.warnings) warn(line);
  if (summary.processes == 0) {
    say(fmt::format("recorded nothing: {}", outcome.nothing_recorded));
    return;
  }
  say(fmt::format("recorded {} of {} in {}", plural(summary.events, "event"),
                  plural(summary.processes, "process", "es"), outcome.directory));
  const bool refused = say_peaks(outcome.directory, summary.events);
  if (summary.dropped_events > 0) {
    warn(fmt::format("{} found no room in the log; give it more with --log-bytes",
                     plural(summary.dropped_events, "event")));
  }
  if (summary.overwritten_events > 0) {
    warn(fmt::format("{} overwritten by newer ones in the ring{}; give it more with --log-bytes",
                     plural(summary.overwritten_events, "event"),
                     summary.overwritten_between == 0
                         ? std::string(": the recording begins in the middle of the run")
                         : fmt::format(", {} of them between recorded ones: figures may be too low "
                                       "or too high",
                                       summary.overwritten_between)));
  }
  if (summary.unwritten_events > 0) {
    warn(fmt::format("{} not written: the traces reached --max-trace",
                     plural(summary.unwritten_events, "event")));
  }
  if (summary.torn_records > 0) {
    warn(fmt::format("{} cut short by a process that was killed",
                     plural(summary.torn_records, "record")));
  }
  if (summary.still_running > 0) {
    warn(fmt::format("{} still running; its log is kept and read with the run",
                     plural(summary.still_running, "recorded process", "es")));
  }
  // Where memory ran out, why comes first.
  say(fmt::format("next: fragscope {} {}", refused ? "explain" : "report", outcome.directory));
}

}  // namespace fragscope::tools
