#include "enforce/stream_events.h"

namespace fragscope::enforce {

StreamEvents::Queue& StreamEvents::queue_of(uint64_t stream) {
  for (Queue& queue : queues_) {
    if (queue.stream == stream) return queue;
  }
  Queue& fresh = queues_.emplace_back();
  fresh.stream = stream;
  return fresh;
}

uint64_t StreamEvents::record(uint64_t stream) {
  Queue& queue = queue_of(stream);
  queue.pending.push_back(api_.record_event(stream));
  ++pending_;
  return queue.completed + queue.pending.size();
}

// An event whose query fails is not taken for done: the device is in an unknown state.
bool StreamEvents::is_done(Event event) const {
  return event != nullptr && api_.query_event(event) == EventState::kDone;
}

void StreamEvents::pop(Queue& queue) {
  if (queue.pending.front() != nullptr) api_.drop_event(queue.pending.front());
  queue.pending.pop_front();
  ++queue.completed;
  --pending_;
}

void StreamEvents::wait() {
  bool unknown = false;
  for (const Queue& queue : queues_) {
    for (Event event : queue.pending) {
      unknown |= event == nullptr || api_.wait_event(event) != kSuccess;
    }
  }
  if (unknown) static_cast<void>(api_.synchronize());
  for (Queue& queue : queues_) {
    while (!queue.pending.empty()) pop(queue);
  }
}

uint64_t StreamEvents::completed(uint64_t stream) const {
  for (const Queue& queue : queues_) {
    if (queue.stream == stream) return queue.completed;
  }
  return 0;
}

}  // namespace fragscope::enforce
