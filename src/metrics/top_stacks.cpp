#include "metrics/top_stacks.h"

#include <algorithm>
#include <map>

namespace fragscope::metrics {

std::vector<StackBytes> top_stacks(const Layout& layout, size_t count) {
  std::map<uint32_t, StackBytes> by_stack;
  for (const LayoutSegment& segment : layout) {
    for (const LayoutBlock& block : segment.blocks) {
      if (block.state != BlockState::active_allocated) continue;
      StackBytes& entry = by_stack[block.stack];
      entry.stack = block.stack;
      entry.bytes += block.size;
      ++entry.blocks;
      entry.last_seq = std::max(entry.last_seq, block.seq);
    }
  }
  std::vector<StackBytes> stacks;
  stacks.reserve(by_stack.size());
  for (const auto& [stack, entry] : by_stack) stacks.push_back(entry);
  std::stable_sort(
      stacks.begin(), stacks.end(),
      [](const StackBytes& left, const StackBytes& right) { return left.bytes > right.bytes; });
  if (stacks.size() > count) stacks.resize(count);
  return stacks;
}

}  // namespace fragscope::metrics
