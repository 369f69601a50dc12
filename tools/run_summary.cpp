#include "tools/run_summary.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "tools/command.h"

namespace fragscope::tools {
namespace {

// Programs that start the real one elsewhere, or without our environment.
constexpr std::array kEscapes = {"sudo",   "su",   "doas",   "ssh",         "docker",
                                 "podman", "srun", "mpirun", "singularity", "systemd-run"};

std::string plural(uint64_t count, const std::string& what, const std::string& ending = "s") {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : ending);
}

std::string likely_reason(const RunPlan& plan) {
  const auto blocked = plan.notes.find("not_preloadable");
  if (blocked != plan.notes.end()) return blocked->second;
  const std::string name = std::filesystem::path(plan.program).filename();
  for (const char* escape : kEscapes) {
    if (name == escape) {
      return fmt::format("{} does not pass the environment on: put fragscope run behind it", name);
    }
  }
  return "no process of the command asked CUDA for memory (or it carries a static CUDA runtime "
         "that could not be followed)";
}

}  // namespace

void print_run_summary(const RunOutcome& outcome) {
  const capture::Summary& summary = outcome.summary;
  for (const std::string& line : summary.warnings) warn(line);
  if (summary.processes == 0) {
    say(fmt::format("recorded nothing: {}", likely_reason(outcome.plan)));
    return;
  }
  say(fmt::format("recorded {} of {} in {}", plural(summary.events, "event"),
                  plural(summary.processes, "process", "es"), outcome.directory));
  if (summary.dropped_events > 0) {
    warn(fmt::format("{} found no room in the log; give it more with --log-bytes",
                     plural(summary.dropped_events, "event")));
  }
  if (summary.torn_records > 0) {
    warn(fmt::format("{} cut short by a process that was killed",
                     plural(summary.torn_records, "record")));
  }
  if (summary.still_running > 0) {
    warn(fmt::format("{} still running; what follows is not recorded",
                     plural(summary.still_running, "recorded process", "es")));
  }
  say(fmt::format("next: fragscope report {}", outcome.directory));
}

}  // namespace fragscope::tools
