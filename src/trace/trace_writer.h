// Events and tables -> bytes of one trace file (FORMAT.md). Data goes out in whole, checksummed
// chunks; what flush() has handed to the sink is readable whatever happens later.
//
// Ownership: borrows the sink. Threads: one at a time. Errors: sinks report them from write();
// after the first failure every call returns it again and the file keeps its last whole chunk.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "event/event.h"
#include "trace/trace_data.h"

namespace fragscope::trace {

class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual Status write(std::span<const std::byte> bytes) = 0;
};

class MemorySink final : public ByteSink {
 public:
  Status write(std::span<const std::byte> bytes) override;
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class TraceWriter {
 public:
  // Writes the file header with what is known of the process at its start.
  static Result<TraceWriter> start(ByteSink& sink, const ProcessInfo& process);
  TraceWriter(TraceWriter&&) noexcept;
  TraceWriter& operator=(TraceWriter&&) noexcept;
  ~TraceWriter();

  // Events come in ascending seq; pid must be the process's. A table entry comes before the first
  // event that refers to it; one that is there already is ignored. Stacks deeper than 4096 frames
  // and texts longer than 1 MiB are cut.
  Status add_event(const Event& event);
  Status add_stack(uint32_t id, std::span<const uint64_t> frames);
  Status add_text(uint32_t id, std::string_view text);
  Status add_api_name(uint16_t id, std::string_view name);
  Status add_module(const Module& module);
  Status add_python_frame(uint32_t id, const PythonFrame& frame);
  Status add_property(std::string_view key, std::string_view value);

  // The file is drained from a log: everything before `position` has been added, counting what the
  // next add_*() adds. Goes into the file with the events, so that a reader of an unsealed trace
  // knows where in the log to go on.
  void set_log_position(uint64_t position);

  // Records added but not handed to the sink yet.
  uint64_t unflushed() const;
  Status flush();
  // Trailer: exit, counts, api_calls. Nothing may follow.
  Status seal(const ProcessInfo& process, const std::map<std::string, uint64_t>& api_calls);

 private:
  struct State;
  explicit TraceWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fragscope::trace
