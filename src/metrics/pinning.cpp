#include "metrics/pinning.h"

#include <algorithm>

namespace fragscope::metrics {

std::vector<PinnedSegment> emptiest_segments(const Layout& layout, size_t count,
                                             size_t max_blocks) {
  std::vector<PinnedSegment> pinned;
  for (const LayoutSegment& segment : layout) {
    const uint64_t active = segment.active_bytes();
    if (active == 0 || active >= segment.size) continue;
    PinnedSegment entry{segment.address, segment.size, active, segment.size - active, {}};
    for (const LayoutBlock& block : segment.blocks) {
      if (block.state != BlockState::inactive) entry.blocks.push_back(block);
    }
    std::stable_sort(
        entry.blocks.begin(), entry.blocks.end(),
        [](const LayoutBlock& left, const LayoutBlock& right) { return left.size > right.size; });
    if (entry.blocks.size() > max_blocks) entry.blocks.resize(max_blocks);
    pinned.push_back(std::move(entry));
  }
  std::stable_sort(pinned.begin(), pinned.end(),
                   [](const PinnedSegment& left, const PinnedSegment& right) {
                     return left.inactive_bytes > right.inactive_bytes;
                   });
  if (pinned.size() > count) pinned.resize(count);
  return pinned;
}

}  // namespace fragscope::metrics
