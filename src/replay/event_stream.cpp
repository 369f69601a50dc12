#include "replay/event_stream.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace fragscope::replay {

bool VectorStream::next(Event& event) {
  if (position_ >= events_.size()) return false;
  event = events_[position_++];
  return true;
}

MergedStream::MergedStream(std::vector<EventStream*> sources) : sources_(std::move(sources)) {
  rewind();
}

bool MergedStream::later(const Head& left, const Head& right) {
  const auto key = [](const Head& head) {
    return std::tuple(head.event.time_ns, head.event.pid, head.event.seq, head.source);
  };
  return key(left) > key(right);
}

void MergedStream::push(size_t source) {
  Head head;
  if (!sources_[source]->next(head.event)) return;
  head.source = source;
  heap_.push_back(head);
  std::push_heap(heap_.begin(), heap_.end(), later);
}

bool MergedStream::next(Event& event) {
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end(), later);
  const Head head = heap_.back();
  heap_.pop_back();
  event = head.event;
  source_ = head.source;
  push(head.source);
  return true;
}

std::span<const Event> MergedStream::next_batch() {
  if (!next(single_)) return {};
  return {&single_, 1};
}

void MergedStream::rewind() {
  heap_.clear();
  for (size_t source = 0; source < sources_.size(); ++source) {
    sources_[source]->rewind();
    push(source);
  }
}

}  // namespace fragscope::replay
