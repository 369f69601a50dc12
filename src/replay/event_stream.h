// EventStream: recorded events, one after another, whatever they come from.
//
// Order: within one process by seq; a merged stream by (time, pid, seq). Threads: one at a time.
// Ownership: sources borrow what they read (reader, vector), which must outlive them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "event/event.h"
#include "trace/trace_reader.h"

namespace fragscope::replay {

class EventStream {
 public:
  virtual ~EventStream() = default;
  // False at the end; then `event` is unchanged.
  virtual bool next(Event& event) = 0;
  // The same, many at a time: empty at the end; valid until the next call of either.
  virtual std::span<const Event> next_batch() = 0;
  // Back to the first event.
  virtual void rewind() = 0;
};

// Events in memory (tests, generated traces).
class VectorStream final : public EventStream {
 public:
  explicit VectorStream(std::span<const Event> events) : events_(events) {}
  bool next(Event& event) override;
  std::span<const Event> next_batch() override {
    return events_.subspan(std::exchange(position_, events_.size()));
  }
  void rewind() override { position_ = 0; }

 private:
  std::span<const Event> events_;
  size_t position_ = 0;
};

// The events of one trace (a binary file or a text trace: both are TraceReaders).
class TraceStream final : public EventStream {
 public:
  explicit TraceStream(trace::TraceReader& reader) : reader_(reader) { reader_.rewind(); }
  bool next(Event& event) override { return reader_.next(event); }
  std::span<const Event> next_batch() override { return reader_.next_batch(); }
  void rewind() override { reader_.rewind(); }

 private:
  trace::TraceReader& reader_;
};

// Several processes as one stream, ordered by (time_ns, pid, seq). Each source must be in its own
// seq order, and stays in it even where its clock steps back.
class MergedStream final : public EventStream {
 public:
  explicit MergedStream(std::vector<EventStream*> sources);
  bool next(Event& event) override;
  // One event at a time, so that source() tells whose it is.
  std::span<const Event> next_batch() override;
  void rewind() override;
  // Which source the last event came from; a pid may stand in several (exec, reuse).
  size_t source() const { return source_; }

 private:
  struct Head {
    Event event;
    size_t source = 0;
  };
  static bool later(const Head& left, const Head& right);
  void push(size_t source);

  std::vector<EventStream*> sources_;
  Event single_;  // of next_batch()
  size_t source_ = 0;
  std::vector<Head> heap_;  // smallest first (std::push_heap with later())
};

}  // namespace fragscope::replay
