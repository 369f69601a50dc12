// Records of a log -> a trace: the one place that knows how the shim's blobs become tables.
//
// Ownership: borrows reader and writer. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "log/log_reader.h"
#include "trace/trace_writer.h"

namespace fragscope::capture {

// "start-end file_offset [=build-id ]path", numbers in hex: what the shim logs of a mapped file.
std::optional<trace::Module> parse_module(std::string_view text);

class LogToTrace final : public log::LogConsumer {
 public:
  // `files_unchanged_since_ns`: build-ids are taken only of files that were not changed after it;
  // UINT64_MAX while the process lives, its start when its log is read later.
  LogToTrace(const log::LogReader& reader, trace::TraceWriter& writer,
             uint64_t files_unchanged_since_ns);

  // Names that an earlier part of the trace has already.
  void know_api_names(const std::unordered_map<uint16_t, std::string>& names);

  void on_event(const Event& event) override;
  void on_blob(log::BlobKind kind, uint32_t id, std::span<const std::byte> bytes) override;

  // From here on events are counted and not written: the trace has reached its bound.
  void stop_writing() { stopped_ = true; }
  uint64_t unwritten_events() const { return unwritten_events_; }

  // The writer's first refusal, if any.
  const std::optional<Error>& error() const { return error_; }

  // Trailer of a log that has been read to its end. Adds what the log's header knows to the
  // properties: log.finished, log.grow_errno, log.overwritten_events, trace.unwritten_events.
  Status seal(log::LogReader& reader, trace::ProcessExit exit);

 private:
  void keep(const Status& status);
  void add_stack(uint32_t id, std::span<const std::byte> bytes);
  void add_module(std::string_view text);
  void add_python_frame(uint32_t id, std::string_view text);
  void add_property(std::string_view text);

  const log::LogReader& reader_;
  trace::TraceWriter& writer_;
  uint64_t files_unchanged_since_ns_;
  std::map<uint16_t, std::string> api_names_;
  std::optional<Error> error_;
  bool stopped_ = false;
  uint64_t unwritten_events_ = 0;
};

// What a trace's header needs, from a log's.
Result<trace::ProcessInfo> process_of(log::LogReader& reader);

}  // namespace fragscope::capture
