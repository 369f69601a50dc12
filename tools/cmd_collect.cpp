// fragscope collect: drains the log of a process that was started with the recorder preloaded.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <memory>

#include "capture/collector.h"
#include "capture/exit_watch.h"
#include "log/log_control.h"
#include "tools/command.h"
#include "tools/recorded_process.h"
#include "tools/run_origin.h"
#include "tools/stale_logs.h"
#include "tools/version.h"

namespace fragscope::tools {
namespace {

// True when the user wants to stop.
bool wait_a_little(const sigset_t& signals) {
  constexpr long kPollNs = 20'000'000;
  const timespec time{0, kPollNs};
  return ::sigtimedwait(&signals, nullptr, &time) > 0;
}

// What `fragscope run` would have known of a process that was started without it.
trace::RunInfo describe(uint32_t pid) {
  trace::RunInfo info;
  info.fragscope_version = kVersion;
  info.host = host_name();
  info.command = command_line_of(pid);
  info.start_time = start_time_of(pid);
  info.notes["collected"] = fmt::format(
      "process {} was started with the library preloaded, and collected while it ran", pid);
  return info;
}

// Of the process; running: it is left alone before its end.
trace::ProcessExit end_of(const capture::ExitWatch& watch, const capture::Collector& collector) {
  if (collector.live_processes() > 0) return {trace::ExitKind::running, 0};
  return watch.exit().value_or(trace::ProcessExit{trace::ExitKind::vanished, 0});
}

int collect(uint32_t pid, uint64_t sample_ms) {
  const auto log = find_log_of(pid);
  if (!log) return fail(log.error());
  {
    const auto control = log::LogControl::open(*log);
    if (!control) return fail(control.error());
    if (control->has_collector()) {
      return fail(fmt::format("process {} has a collector already", pid), kExitNo);
    }
  }
  const std::string directory = std::filesystem::path(*log).parent_path().string();
  constexpr uint64_t kMillisecond = 1'000'000;
  const capture::ExitWatch watch(pid);
  auto collector = capture::Collector::open(
      {directory, directory, describe(pid), 0, sample_ms * kMillisecond, pid, false});
  if (!collector) return fail(collector.error(), kExitOutput);
  say(fmt::format("collecting process {} in {} until it ends (Ctrl-C: stop collecting)", pid,
                  directory));
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  Status polled = collector->poll();
  while (polled && collector->live_processes() > 0 && !wait_a_little(signals)) {
    polled = collector->poll();
  }
  const auto summary = collector->finish(end_of(watch, *collector));
  if (!polled) return fail(polled.error(), kExitOutput);
  if (!summary) return fail(summary.error(), kExitOutput);
  say(fmt::format("collected {} events of {} process{} in {}", summary->events, summary->processes,
                  summary->processes == 1 ? "" : "es", directory));
  return kExitOk;
}

struct CollectOptions {
  std::string target;
  bool stale = false;
  uint64_t sample_ms = 500;
};

int run_collect(const CollectOptions& options) {
  if (options.stale == !options.target.empty()) {
    return fail("give one of PID, RUN and --stale", kExitUsage);
  }
  if (options.stale) return collect_stale_logs();
  uint32_t pid = 0;
  const char* const end = options.target.data() + options.target.size();
  const auto [stop, error] = std::from_chars(options.target.data(), end, pid);
  if (error == std::errc() && stop == end) return collect(pid, options.sample_ms);
  std::error_code failed;
  if (std::filesystem::is_directory(options.target, failed)) {
    return finish_named_run(options.target);
  }
  return fail(options.target + ": neither a process nor a run directory", kExitUsage);
}

}  // namespace

void add_collect_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("collect",
                                         "Write the trace of a process that was started with "
                                         "LD_PRELOAD, while it runs; or finish a run "
                                         "whose recorder was killed");
  const auto options = std::make_shared<CollectOptions>();
  command->add_option("TARGET", options->target,
                      "PID of the process, or the run directory to finish");
  command->add_flag("--stale", options->stale,
                    "Finish all runs of yours whose killed recorders left logs in memory");
  command
      ->add_option(
          "--sample-ms", options->sample_ms,
          "Look at RSS, PSS and /dev/shm of the process and its children this often (500); "
          "0: never")
      ->check(CLI::Range(0u, 3'600'000u));
  command->callback([options, &context] { context.exit_code = run_collect(*options); });
}

}  // namespace fragscope::tools
