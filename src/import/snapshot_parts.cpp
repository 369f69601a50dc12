#include "import/snapshot_parts.h"

#include <algorithm>

namespace fragscope::imported {

uint32_t StackTable::intern(const std::vector<uint32_t>& frames, Budget& budget) {
  uint64_t hash = frames.size();
  for (const uint32_t frame : frames) hash = (hash ^ frame) * 0x9e37'79b9'7f4a'7c15ull;
  const auto [first, last] = ids_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    const auto [known, count] = this->frames(at->second);
    if (std::equal(known, known + count, frames.begin(), frames.end())) return at->second;
  }
  if (!budget.spend(frames.size() * sizeof(uint32_t) * 2 + 64)) return 0;
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  starts_.push_back(frames_.size());
  const auto id = static_cast<uint32_t>(starts_.size() - 1);
  ids_.emplace(hash, id);
  return id;
}

}  // namespace fragscope::imported
