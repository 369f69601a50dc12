// Puts a fresh allocator into a given state: segments with blocks at given places, by nothing but
// ordinary requests. Used to go on after a divergence.
//
// A block that cannot be there (outside every segment, overlapping another one, of a size that the
// pool's rules do not allow) is left out and counted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/caching_allocator.h"
#include "replay/recorded_segments.h"

namespace fragscope::replay {

struct PlacedBlock {
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t requested = 0;  // 0: unknown
  bool pending = false;    // freed by the client, still in use
};

struct BuiltBlock {
  PlacedBlock placed;
  model::BlockIndex block = model::kNone;
};

struct BuildResult {
  std::vector<BuiltBlock> blocks;
  uint64_t lost = 0;
};

// `allocator` is fresh and asks `provider`; segments come in the order of their creation, blocks in
// any order. Pending blocks are left allocated; the caller frees them.
BuildResult build_state(model::CachingAllocator& allocator, RecordedSegments& provider,
                        std::span<const RecordedSegments::Segment> segments,
                        std::vector<PlacedBlock> blocks);

}  // namespace fragscope::replay
