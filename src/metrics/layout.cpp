#include "metrics/layout.h"

namespace fragscope::metrics {

uint64_t LayoutSegment::active_bytes() const {
  uint64_t sum = 0;
  for (const LayoutBlock& block : blocks) {
    if (block.state != BlockState::inactive) sum += block.size;
  }
  return sum;
}

}  // namespace fragscope::metrics
