#include "metrics/pinned_bytes.h"

namespace fragscope::metrics {

void PinnedBytes::feed(const Event& event) {
  if (event.result != 0 && event.result != kResultPending) return;
  switch (event.kind) {
    case EventKind::pinned_alloc:
    case EventKind::pinned_register:
      begin(event);
      return;
    case EventKind::pinned_free:
    case EventKind::pinned_unregister:
      end(event.address);
      return;
    case EventKind::context_destroy:
      end_context(event);
      return;
    default:
      return;
  }
}

void PinnedBytes::begin(const Event& event) {
  if (event.address == kUnknown || event.size == kUnknown || event.address == 0) return;
  end(event.address);
  live_[event.address] = {event.size, event.device, event.kind == EventKind::pinned_register,
                          event.aux};
  gauge_.rise(event.size, event.seq);
}

void PinnedBytes::end(uint64_t address) {
  const auto at = live_.find(address);
  if (at == live_.end()) return;
  gauge_.fall(at->second.size);
  live_.erase(at);
}

// With an address: a context that the program made itself, and what names it as its own.
void PinnedBytes::end_context(const Event& event) {
  for (auto at = live_.begin(); at != live_.end();) {
    const Allocation& allocation = at->second;
    const bool ends = event.address == kUnknown ? allocation.device == event.device
                                                : allocation.context == event.address;
    if (!ends || allocation.registered) {
      ++at;
      continue;
    }
    gauge_.fall(allocation.size);
    at = live_.erase(at);
  }
}

}  // namespace fragscope::metrics
