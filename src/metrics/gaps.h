// Where is the free memory that is stuck between live blocks?
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "metrics/layout.h"

namespace fragscope::metrics {

// An inactive stretch of a segment in which something is live, and its live neighbours.
struct Gap {
  uint64_t address = 0;
  uint64_t size = 0;  // bytes
  uint64_t segment_address = 0;
  uint64_t segment_size = 0;
  std::optional<LayoutBlock> before;  // absent: the segment's edge
  std::optional<LayoutBlock> after;
};

// The `count` largest, largest first; ties: lower address first.
std::vector<Gap> largest_gaps(const Layout& layout, size_t count);

}  // namespace fragscope::metrics
