#include "model/block.h"

#include <utility>

namespace fragscope::model {

void BlockTable::grow_slots() {
  const std::vector<BlockIndex> old = std::exchange(slots_, {});
  const size_t size = old.empty() ? 64 : old.size() * 2;
  slots_.assign(size, kNone);
  shift_ = 64;
  for (size_t rest = size; rest > 1; rest >>= 1) --shift_;
  for (const BlockIndex index : old) {
    if (index == kNone) continue;
    size_t slot = slot_of(blocks_[index].address);
    while (slots_[slot] != kNone) slot = (slot + 1) & (size - 1);
    slots_[slot] = index;
  }
}

}  // namespace fragscope::model
