// The model's segments at one moment of a replay.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/caching_allocator.h"

namespace fragscope::replay {

struct SegmentsAt {
  uint64_t seq = 0;      // after the call that this event belongs to
  uint64_t time_ns = 0;  // CLOCK_MONOTONIC
  std::vector<model::SegmentSnapshot> segments;
};

// Keeps the first moment it is given.
inline void keep_first(std::optional<SegmentsAt>& kept, uint64_t seq, uint64_t time_ns,
                       const model::CachingAllocator& allocator) {
  if (!kept) kept = SegmentsAt{seq, time_ns, allocator.segments()};
}

}  // namespace fragscope::replay
