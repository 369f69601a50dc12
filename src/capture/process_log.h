// One process's log on its way into one trace file.
//
// Ownership: the log file and the trace file. Threads: one at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "capture/exit_watch.h"
#include "capture/log_to_trace.h"
#include "capture/trace_file.h"
#include "log/log_reader.h"
#include "trace/run_directory.h"

namespace fragscope::capture {

class ProcessLog {
 public:
  enum class Phase {
    waiting,   // no record yet, or not readable yet
    draining,  // its trace is being written
    sealed,    // done, the log is deleted
    unused,    // its process ended without a record: the log is deleted, there is no trace
    failed,    // the output refused; log and the whole part of the trace are kept
  };

  ProcessLog(std::string log_path, std::string trace_path);
  ProcessLog(const ProcessLog&) = delete;  // its parts refer to each other
  ProcessLog& operator=(const ProcessLog&) = delete;

  // Logs are named <pid>-<start_ticks>-<random>.fslog; 0 when this one is not.
  static uint32_t pid_of_name(const std::string& path);

  // Takes what is there; seals or discards when the process is gone. An error comes once, then the
  // phase is `failed`. Why a log stays `waiting` is in obstacle().
  Status drain();

  // The caller has seen the process end.
  void note_exit(trace::ProcessExit exit) { noted_exit_ = exit; }

  // What the process has told since the last call; what it tells of is in the trace file then.
  std::optional<log::LogNotices> take_news();
  // Bytes of its trace so far, and an end to it: later events are counted, not written.
  uint64_t trace_bytes() const { return file_ ? file_->size() : trace_bytes_; }
  void stop_writing();
  uint64_t unwritten_events() const {
    return converter_ ? converter_->unwritten_events() : unwritten_events_;
  }

  // Writes what is buffered (the process lives, the collector goes).
  Status flush();

  Phase phase() const { return phase_; }
  bool alive() const;
  const std::string& log_path() const { return log_path_; }
  const std::optional<Error>& obstacle() const { return obstacle_; }
  // The process's number here, where it is not what the process calls itself.
  uint32_t pid() const { return pid_here_ != 0 ? pid_here_ : pid_; }
  uint64_t events() const {  // in the trace
    return (reader_ ? reader_->events() : events_) - unwritten_events();
  }
  uint64_t overwritten_events() const {
    return reader_ ? reader_->overwritten_events() : overwritten_events_;
  }
  // Of these: between events that were recorded.
  uint64_t overwritten_between() const;
  uint64_t dropped_events();  // of a log that nobody drains any more too, as it is now
  uint64_t torn_records() const { return reader_ ? reader_->torn_records() : torn_records_; }
  trace::RunProcess run_process() const;

 private:
  bool open();
  bool is_blank() const;
  Status start_trace();
  Status take(bool is_alive);
  Status publish();
  Status serve_flush(uint64_t wanted);
  Status look_for_news(bool is_alive);
  Status end();
  Status fail(const Error& error);
  void discard(Phase phase);

  std::string log_path_;
  std::string trace_path_;
  Phase phase_ = Phase::waiting;
  uint32_t pid_ = 0;       // as the process calls itself
  uint32_t pid_here_ = 0;  // 0: it was gone before that was asked
  uint64_t start_ticks_ = 0;
  std::optional<trace::ProcessExit> noted_exit_;
  std::optional<ExitWatch> watch_;
  trace::ProcessExit exit_;
  std::optional<Error> obstacle_;
  uint64_t events_ = 0;
  uint64_t dropped_events_ = 0;
  uint64_t torn_records_ = 0;
  uint64_t overwritten_events_ = 0;
  uint64_t overwritten_between_ = 0;
  uint64_t unwritten_events_ = 0;
  uint64_t trace_bytes_ = 0;
  bool stopped_ = false;
  uint64_t flushed_position_ = 0;
  uint64_t flushes_done_ = 0;
  log::LogNotices told_;
  bool has_news_ = false;

  std::optional<log::LogReader> reader_;
  std::unique_ptr<TraceFile> file_;
  std::optional<trace::TraceWriter> writer_;
  std::optional<LogToTrace> converter_;
};

}  // namespace fragscope::capture
