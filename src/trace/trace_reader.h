// Bytes of one trace file -> events and tables. Any damage ends the stream at the last whole chunk
// and is told by damage(); it is never a crash and never a wrong event.
//
// Ownership: owns the bytes (a file is mapped or read once). Threads: one at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "event/event.h"
#include "trace/trace_data.h"

namespace fragscope::trace {

class TraceReader {
 public:
  // kForeign, kNewerVersion, kDamaged (header), kNotFound, kPermission. A cut tail is no error
  // here.
  static Result<TraceReader> open_file(const std::string& path);
  static Result<TraceReader> open_bytes(std::vector<std::byte> bytes, std::string name);
  TraceReader(TraceReader&&) noexcept;
  TraceReader& operator=(TraceReader&&) noexcept;
  ~TraceReader();

  // False at the end or at damage. Chunks are decoded one at a time.
  bool next(Event& event);
  // The same, many at a time (empty = end or damage); valid until the next call of either.
  std::span<const Event> next_batch();
  // Back to the first event. Tables stay.
  void rewind();

  // Complete from the start for a sealed trace (the trailer is found at open).
  const ProcessInfo& process() const;
  // Grow while events are read; load_tables() reads all of them without moving the event position.
  const TraceTables& tables() const;
  void load_tables();

  // What is wrong with the file, if anything: name, offset, what was lost.
  const std::optional<Error>& damage() const;

 private:
  struct State;
  explicit TraceReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fragscope::trace
