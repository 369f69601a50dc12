// Segments and live blocks of a recording -> the complete picture that an allocator can be put into
// (model::CachingAllocator::restore): sizes that the recording does not tell, free blocks between.
//
// A block that cannot be there (outside every segment, overlapping another one) is left out and
// counted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/caching_allocator.h"
#include "replay/recorded_segments.h"

namespace fragscope::replay {

struct PlacedBlock {
  uint64_t address = 0;
  uint64_t size = kUnknown;  // unknown: follows from the request and from what lies behind
  uint64_t requested = 0;    // 0: unknown
  bool pending = false;      // freed by the client, still in use
};

struct BuiltState {
  std::vector<model::SegmentSnapshot> segments;  // pending blocks as allocated ones
  std::vector<uint64_t> pending;                 // addresses
  uint64_t lost = 0;
};

// `rules` tells how requests are rounded; segments come in the order of their creation, blocks in
// any order.
BuiltState build_state(const model::CachingAllocator& rules,
                       std::span<const RecordedSegments::Segment> segments,
                       std::vector<PlacedBlock> blocks);

}  // namespace fragscope::replay
