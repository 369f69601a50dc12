#include "enforce/cached_segments.h"

namespace fragscope::enforce {

std::optional<uint64_t> CachedSegments::device_malloc(uint64_t bytes) {
  uint64_t address = 0;
  last_result_ = api_.malloc(bytes, address);
  last_address_ = address;
  if (last_result_ != kSuccess) {
    ++failures_;
    return std::nullopt;
  }
  sizes_[address] = bytes;
  return address;
}

void CachedSegments::device_free(uint64_t address, uint64_t) {
  sizes_.erase(address);
  static_cast<void>(api_.free(address));
}

model::DeviceMemoryInfo CachedSegments::memory_info() {
  uint64_t free_bytes = 0;
  uint64_t total = 0;
  if (!api_.memory_info(free_bytes, total)) return {};
  return {free_bytes, total};
}

bool CachedSegments::record_event(uint64_t stream) {
  events_.record(stream);
  return true;
}

std::optional<std::pair<uint64_t, uint64_t>> CachedSegments::segment_of(uint64_t address) const {
  auto next = sizes_.upper_bound(address);
  if (next == sizes_.begin()) return std::nullopt;
  --next;
  if (address - next->first >= next->second) return std::nullopt;
  return *next;
}

bool CachedSegments::contains(uint64_t address) const { return segment_of(address).has_value(); }

}  // namespace fragscope::enforce
