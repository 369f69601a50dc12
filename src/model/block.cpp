#include "model/block.h"

#include <utility>

namespace fragscope::model {
namespace {

constexpr size_t kFirstSlots = 64;

}  // namespace

// The high bits of the 32-bit hash are the slot: 2^31 slots are more than there can be blocks for.
void BlockTable::grow_slots() const {
  const std::vector<Slot> old = std::exchange(slots_, {});
  const size_t size = old.empty() ? kFirstSlots : old.size() * 2;
  slots_.assign(size, Slot{});
  shift_ = 32;
  for (size_t rest = size; rest > 1; rest >>= 1) --shift_;
  for (const Slot& from : old) {
    if (from.block == kNone) continue;
    size_t slot = slot_of(from.hash);
    while (slots_[slot].block != kNone) slot = (slot + 1) & (size - 1);
    slots_[slot] = from;
  }
}

void BlockTable::make_map() const {
  has_map_ = true;
  grow_slots();
  for (BlockIndex index = 0; index < limit(); ++index) {
    if (blocks_[index].in_use && blocks_[index].allocated) link(index);
  }
}

size_t BlockTable::bytes() const {
  return blocks_.capacity() * sizeof(Block) + slots_.capacity() * sizeof(Slot);
}

}  // namespace fragscope::model
