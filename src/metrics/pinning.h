// Which few live blocks keep mostly empty segments from being given back?
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "metrics/layout.h"

namespace fragscope::metrics {

struct PinnedSegment {
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t active_bytes = 0;
  uint64_t inactive_bytes = 0;  // what would come back if the blocks below were gone or elsewhere
  std::vector<LayoutBlock> blocks;  // live ones, largest first
};

// The `count` segments with something live whose free bytes are most, most first; ties: lower
// address first. At most `max_blocks` blocks are listed for each.
std::vector<PinnedSegment> emptiest_segments(const Layout& layout, size_t count, size_t max_blocks);

}  // namespace fragscope::metrics
