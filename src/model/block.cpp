#include "model/block.h"

#include <utility>

namespace fragscope::model {

BlockIndex BlockTable::create() {
  BlockIndex index = 0;
  if (unused_.empty()) {
    index = static_cast<BlockIndex>(blocks_.size());
    blocks_.emplace_back();
  } else {
    index = unused_.back();
    unused_.pop_back();
    const uint32_t generation = blocks_[index].generation + 1;
    blocks_[index] = Block{};
    blocks_[index].generation = generation;
  }
  blocks_[index].in_use = true;
  return index;
}

void BlockTable::destroy(BlockIndex index) {
  blocks_[index].in_use = false;
  unused_.push_back(index);
}

size_t BlockTable::slot_of(uint64_t address) const {
  return static_cast<size_t>((address * 0x9e37'79b9'7f4a'7c15ull) >> shift_);
}

BlockIndex BlockTable::find_allocated(uint64_t address) const {
  if (linked_ == 0) return kNone;
  const size_t mask = slots_.size() - 1;
  for (size_t slot = slot_of(address); slots_[slot] != kNone; slot = (slot + 1) & mask) {
    if (blocks_[slots_[slot]].address == address) return slots_[slot];
  }
  return kNone;
}

void BlockTable::link_address(BlockIndex index) {
  if ((linked_ + 1) * 2 > slots_.size()) grow_slots();
  const size_t mask = slots_.size() - 1;
  size_t slot = slot_of(blocks_[index].address);
  while (slots_[slot] != kNone) slot = (slot + 1) & mask;
  slots_[slot] = index;
  ++linked_;
}

void BlockTable::unlink_address(BlockIndex index) {
  const size_t mask = slots_.size() - 1;
  size_t hole = slot_of(blocks_[index].address);
  while (slots_[hole] != index) hole = (hole + 1) & mask;
  // Close the hole: move back every follower that may not stand behind a gap.
  for (size_t at = (hole + 1) & mask; slots_[at] != kNone; at = (at + 1) & mask) {
    const size_t home = slot_of(blocks_[slots_[at]].address);
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = kNone;
  --linked_;
}

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
