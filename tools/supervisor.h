// The parent's part in running a command: starting it, passing signals on, learning how it and its
// orphans end. The command keeps the terminal, the process group and the standard streams.
//
// Signals: those that the terminal sends reach the command anyway and are ignored here; those that
// somebody sent to this process alone are passed on. When the command is stopped from the terminal
// this process stops too, so that the shell sees a stopped job.
//
// Threads: start() and the object belong to the main thread of a single-threaded process; it
// changes the process's signal mask and makes it the reaper of its descendants, for good.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/run_environment.h"
#include "trace/trace_data.h"

namespace fragscope::tools {

class Supervisor {
 public:
  using OnExit = std::function<void(uint32_t pid, trace::ProcessExit exit)>;

  // Errors: kNotFound or kPermission when the command cannot be executed, kInternal when there can
  // be no process. The command runs once this returns.
  static Result<Supervisor> start(const std::vector<std::string>& command,
                                  const Environment& environment);

  // Waits for a signal for at most `limit`, passes on what came, and tells `on_exit` of every
  // process (the command and adopted orphans) that was reaped. Returns at once when any was.
  void wait(std::chrono::milliseconds limit, const OnExit& on_exit);

  pid_t pid() const { return pid_; }
  bool ended() const { return exit_.kind != trace::ExitKind::running; }
  trace::ProcessExit exit() const { return exit_; }  // of the command
  // Children are left: the command, or descendants of it that were adopted.
  bool has_descendants() const { return has_descendants_; }
  // An interrupt or termination signal came in after the command had ended.
  bool asked_to_stop() const { return asked_to_stop_; }

 private:
  explicit Supervisor(pid_t pid) : pid_(pid) {}
  void handle(const siginfo_t& signal);
  bool reap(const OnExit& on_exit);
  void follow_stop(int signal) const;

  pid_t pid_;
  trace::ProcessExit exit_;
  bool has_descendants_ = true;
  bool asked_to_stop_ = false;
};

}  // namespace fragscope::tools
