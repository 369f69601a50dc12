// A recorded trace, lengthened: its client calls again and again on the model, recorded as torch's
// tracker would, until there are enough events. The result is a trace like any other, in which
// every prediction of a verify must be right.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "replay/block_ops.h"
#include "replay/client_calls.h"
#include "replay/event_stream.h"
#include "tests/support/recorded_model.h"
#include "trace/trace_reader.h"
#include "trace/trace_writer.h"

namespace fragscope::bench {

// One client call of the recording: allocations are numbered, frees name the number.
struct ListedCall {
  uint64_t bytes = 0;  // 0: a free
  uint64_t stream = 0;
  uint32_t number = 0;
};

class CallCollector final {
 public:
  explicit CallCollector(replay::EventStream& events) {
    replay::BlockPlane plane;
    replay::ClientCalls<CallCollector> calls(*this);
    std::vector<replay::BlockOp> ops;
    Event event;
    while (events.next(event)) {
      plane.feed(event, ops);
      for (const replay::BlockOp& op : ops) calls.feed(op);
    }
    calls.finish();
    for (const auto& [address, number] : live_) list_.push_back({0, 0, number});
  }
  // Every block is freed in the end, so that the list can be repeated.
  const std::vector<ListedCall>& list() const { return list_; }
  uint32_t allocations() const { return count_; }

 private:
  friend class replay::ClientCalls<CallCollector>;
  void on_alloc(const replay::BlockOp& op, replay::OpSpan) {
    if (op.request() == kUnknown || op.request() == 0) return;
    on_free(op);
    live_[op.address] = count_;
    list_.push_back({op.request(), op.stream == kUnknown ? 0 : op.stream, count_++});
  }
  void on_oom(const replay::BlockOp&, replay::OpSpan) {}
  void on_empty_cache(replay::OpSpan) {}
  void on_completions(replay::OpSpan) {}
  void on_free(const replay::BlockOp& op) {
    const auto live = live_.find(op.address);
    if (live == live_.end()) return;
    list_.push_back({0, 0, live->second});
    live_.erase(live);
  }
  void on_free_pending(const replay::BlockOp& op) { on_free(op); }
  void on_block_size(const replay::BlockOp&) {}

  std::vector<ListedCall> list_;
  std::unordered_map<uint64_t, uint32_t> live_;
  uint32_t count_ = 0;
};

// The events of `list`, repeated until there are at least `count` of them.
inline std::vector<Event> repeated_events(const CallCollector& calls, size_t count) {
  test::RecordedModel model;
  std::vector<uint64_t> addresses(calls.allocations());
  model.events().reserve(count + 3 * calls.list().size());
  while (model.events().size() < count) {
    for (const ListedCall& call : calls.list()) {
      if (call.bytes != 0) {
        addresses[call.number] = model.alloc(call.bytes, call.stream);
      } else {
        model.free(addresses[call.number]);
      }
    }
  }
  uint64_t random = 1;
  uint64_t time = 1'000'000'000;
  for (Event& event : model.events()) {  // stacks and times as a recorder would leave them
    random = random * 6364136223846793005u + 1442695040888963407u;
    event.time_ns = time += 1000 + (random >> 33) % 8000;
    event.stack = static_cast<uint32_t>(event.requested % 499 + 1);
  }
  return std::move(model.events());
}

inline std::vector<std::byte> trace_bytes(std::span<const Event> events) {
  trace::MemorySink sink;
  trace::ProcessInfo process;
  process.pid = 100;
  process.program = "bench";
  auto writer = trace::TraceWriter::start(sink, process);
  if (!writer) return {};
  if (!writer->add_property("torch_version", "2.15")) return {};
  if (!writer->add_property("block_source", "adaptor")) return {};
  for (const Event& event : events) {
    if (!writer->add_event(event)) return {};
  }
  process.properties = {{"torch_version", "2.15"}, {"block_source", "adaptor"}};
  if (!writer->seal(process, {})) return {};
  return sink.bytes();
}

}  // namespace fragscope::bench
