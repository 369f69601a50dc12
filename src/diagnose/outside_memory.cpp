#include "diagnose/outside_memory.h"

#include <algorithm>
#include <map>

namespace fragscope::diagnose {

void OutsideMemory::feed(const Event& event) {
  driver_.feed(event);
  if (event.result != 0 || (event.flags & kFlagServed)) return;
  switch (event.kind) {
    case EventKind::device_alloc:
    case EventKind::async_alloc:
    case EventKind::array_alloc: {
      const uint64_t size = event.size != kUnknown ? event.size : event.requested;
      if (size == kUnknown) return;
      held_[event.address] = {size, event.device, event.stack, event.seq};
      return;
    }
    case EventKind::device_free:
    case EventKind::async_free:
    case EventKind::array_free:
      held_.erase(event.address);
      return;
    case EventKind::context_destroy:
      for (auto at = held_.begin(); at != held_.end();) {
        at = at->second.device == event.device ? held_.erase(at) : std::next(at);
      }
      return;
    default:
      return;
  }
}

std::vector<OutsideShare> OutsideMemory::at(int32_t device, const metrics::Layout& layout,
                                            StackRoles& roles) const {
  uint64_t reserved = 0;
  std::unordered_map<uint64_t, uint64_t> segments;
  for (const metrics::LayoutSegment& segment : layout) {
    reserved += segment.size;
    if (!segment.expandable) segments[segment.address] = segment.size;
  }
  const uint64_t driver = driver_bytes(device);
  uint64_t left = driver - std::min(driver, reserved);
  std::map<std::string, OutsideShare> by_library;
  const auto add = [&](const std::string& library, uint64_t bytes) {
    OutsideShare& share = by_library[library];
    share.library = library;
    share.add(std::min(bytes, left));
    left -= std::min(bytes, left);
  };
  for (const auto& [address, held] : held_) {
    if (held.device != device || segments.count(address) != 0) continue;
    add(roles.library(held.stack, held.seq), held.size);
  }
  if (left > 0) add("unknown", left);
  std::vector<OutsideShare> list;
  for (const auto& [library, share] : by_library) list.push_back(share);
  std::stable_sort(list.begin(), list.end(), [](const auto& left_share, const auto& right_share) {
    return left_share.bytes > right_share.bytes;
  });
  return list;
}

}  // namespace fragscope::diagnose
