// The collector of `fragscope run`: turns the logs of a run's processes into trace files while they
// live, and seals each trace when its process is gone. It runs in the parent, so a target that is
// killed loses nothing that it had committed.
//
// Use: create_run_directory(); Collector::open(); start the command; poll() every few ten
// milliseconds and after each SIGCHLD; note_exit() for every process that was waited for; finish().
//
// Ownership: owns the run directory's run.json and *.fst files and removes a log once its trace is
// sealed. Threads: one at a time. Errors: poll() and finish() report a refusing output (disk full,
// directory gone) once; from then on that process's log is kept and named in Summary::warnings.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "log/log_reader.h"
#include "trace/run_directory.h"

namespace fragscope::capture {

struct CollectorOptions {
  std::string run_directory;  // exists; holds the result
  std::string log_directory;  // FRAGSCOPE_LOG_DIR; logs are looked for here and in run_directory
  // command, start_time, host, gpu, fragscope_version; the rest is the collector's.
  trace::RunInfo info;
  // Traces of the run may take so many bytes together, and a chunk each; what comes then is
  // counted, not written. 0: as many as the disk has.
  uint64_t max_trace_bytes = 0;
  // How often memory of the host is looked at (host_sampler.h); 0: never.
  uint64_t host_interval_ns = 0;
  // Its descendants, and itself unless it is this process, are the command's processes.
  uint32_t host_root = 0;
  // Keep a small log ready in log_directory for processes that may make none (spare_log.h).
  bool spare_log = false;
};

struct Summary {
  uint64_t processes = 0;  // that left a trace
  uint64_t still_running = 0;
  uint64_t events = 0;
  uint64_t dropped_events = 0;       // found no room in their log
  uint64_t torn_records = 0;         // their writer died in the middle
  uint64_t overwritten_events = 0;   // of rings: newer ones took their place
  uint64_t overwritten_between = 0;  // of these: between events that were recorded
  uint64_t unwritten_events = 0;     // beyond max_trace_bytes
  // One line each: a log that could not be drained and where it is, a foreign file, …
  std::vector<std::string> warnings;
};

class Collector {
 public:
  // Writes run.json with sealed = false. Errors: kPermission, kNoSpace, kNotFound.
  static Result<Collector> open(CollectorOptions options);
  Collector(Collector&&) noexcept;
  Collector& operator=(Collector&&) noexcept;
  ~Collector();  // without finish(): what was flushed stays, logs stay, run.json stays unsealed

  // Takes up new logs, drains all, seals the traces of processes that are gone. Never waits.
  Status poll();

  // How a process ended that the caller has waited for. Call it after waitpid() returned and before
  // the next poll(): a gone process without a note is sealed as `vanished`.
  void note_exit(uint32_t pid, trace::ProcessExit exit);

  // A child of the caller's own, no process of the command: it is no part of the run.
  void leave_out(uint32_t pid);

  // A word for run.json's notes, written by finish().
  void note(const std::string& key, const std::string& text);

  // What recorded processes have told since the last call, after poll() has written the record of
  // it: memory that ran out, a threshold that was crossed.
  struct News {
    uint32_t pid = 0;
    log::LogNotices notices;
  };
  std::vector<News> take_news();

  // Processes with a log that are alive now; finish() does not wait for them.
  uint64_t live_processes() const;

  // Last poll, seals what can be sealed and run.json, removes the log directory if it is empty. The
  // traces of processes that still run stay unsealed and readable; their logs stay.
  // `exit`: of the command itself.
  Result<Summary> finish(trace::ProcessExit exit);

 private:
  struct State;
  explicit Collector(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fragscope::capture
