// The events that were recorded behind the uses of freed blocks, stream by stream in their order,
// and how many of them are done.
//
// Threads: callers hold the allocator's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "enforce/device_api.h"

namespace fragscope::enforce {

class StreamEvents {
 public:
  explicit StreamEvents(DeviceApi& api) : api_(api) {}

  // One more event of `stream`; its number, counted from 1 per stream.
  uint64_t record(uint64_t stream);
  // Asks CUDA, as PyTorch's process_events does: each stream's oldest events until one is not done.
  // Calls done(stream, count) for each stream: its first `count` events are done by now.
  template <typename Done>
  void poll(Done done) {
    for (Queue& queue : queues_) {
      while (!queue.pending.empty() && is_done(queue.pending.front())) pop(queue);
      done(queue.stream, queue.completed);
    }
  }
  // Waits for all of them.
  void wait();

  bool empty() const { return pending_ == 0; }
  uint64_t completed(uint64_t stream) const;

 private:
  struct Queue {
    uint64_t stream = 0;
    uint64_t completed = 0;
    std::deque<Event> pending;  // nullptr: could not be recorded, done when the device has waited
  };
  bool is_done(Event event) const;
  void pop(Queue& queue);
  Queue& queue_of(uint64_t stream);

  DeviceApi& api_;
  std::vector<Queue> queues_;
  uint64_t pending_ = 0;
};

}  // namespace fragscope::enforce
