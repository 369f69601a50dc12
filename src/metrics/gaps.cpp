#include "metrics/gaps.h"

#include <algorithm>

namespace fragscope::metrics {

std::vector<Gap> largest_gaps(const Layout& layout, size_t count) {
  std::vector<Gap> gaps;
  for (const LayoutSegment& segment : layout) {
    if (segment.active_bytes() == 0) continue;  // it could be given back whole
    for (size_t i = 0; i < segment.blocks.size(); ++i) {
      const LayoutBlock& block = segment.blocks[i];
      if (block.state != BlockState::inactive) continue;
      Gap gap{block.address, block.size, segment.address, segment.size, std::nullopt, std::nullopt};
      if (i > 0) gap.before = segment.blocks[i - 1];
      if (i + 1 < segment.blocks.size()) gap.after = segment.blocks[i + 1];
      gaps.push_back(gap);
    }
  }
  std::stable_sort(gaps.begin(), gaps.end(),
                   [](const Gap& left, const Gap& right) { return left.size > right.size; });
  if (gaps.size() > count) gaps.resize(count);
  return gaps;
}

}  // namespace fragscope::metrics
