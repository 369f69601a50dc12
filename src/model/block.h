// Blocks of the caching allocator: subranges of segments, kept by index in one slab.
#pragma once

#include <cstdint>
#include <vector>

#include "model/stats.h"

namespace fragscope::model {

using BlockIndex = uint32_t;
inline constexpr uint32_t kNone = UINT32_MAX;  // no block, pool, segment, …

struct Block {
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t requested_size = 0;  // of the last use
  BlockIndex previous = kNone;  // neighbours in the same segment
  BlockIndex next = kNone;
  uint32_t arena = kNone;    // its pool and stream
  uint32_t number = 0;       // creation number, see TieRule
  uint32_t range = kNone;    // its expandable segment
  uint32_t gc_base = 0;      // the pool's call counter when the block became free
  uint32_t generation = 0;   // grows when the index is used again
  uint16_t event_count = 0;  // outstanding events
  bool in_use : 1 = false;   // the slab entry is a block
  bool allocated : 1 = false;
  bool active : 1 = false;  // allocated, or freed and waiting for events
  bool mapped : 1 = true;
  bool has_uses : 1 = false;  // recorded on other streams
  bool deferred : 1 = false;  // freed under a scope, no events yet

  bool is_split() const { return previous != kNone || next != kNone; }
};
static_assert(sizeof(Block) <= 64);

// All blocks of one allocator, and the map from addresses of active blocks to them.
class BlockTable {
 public:
  BlockIndex create();
  void destroy(BlockIndex index);
  Block& operator[](BlockIndex index) { return blocks_[index]; }
  const Block& operator[](BlockIndex index) const { return blocks_[index]; }
  BlockIndex limit() const { return static_cast<BlockIndex>(blocks_.size()); }

  // The allocated block that starts at `address`, or kNone.
  BlockIndex find_allocated(uint64_t address) const;
  void link_address(BlockIndex index);
  void unlink_address(BlockIndex index);
  // find_allocated() and unlink_address() in one.
  BlockIndex take_allocated(uint64_t address);

 private:
  size_t slot_of(uint64_t address) const;
  void clear_slot(size_t hole);
  void grow_slots();

  std::vector<Block> blocks_;
  std::vector<BlockIndex> unused_;
  std::vector<BlockIndex> slots_;  // open addressing by address
  size_t linked_ = 0;
  unsigned shift_ = 64;
};

// The quick ways are here so that the allocator has them without a call.

inline BlockIndex BlockTable::create() {
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

inline void BlockTable::destroy(BlockIndex index) {
  blocks_[index].in_use = false;
  unused_.push_back(index);
}

inline size_t BlockTable::slot_of(uint64_t address) const {
  return static_cast<size_t>((address * 0x9e37'79b9'7f4a'7c15ull) >> shift_);
}

inline BlockIndex BlockTable::find_allocated(uint64_t address) const {
  if (linked_ == 0) return kNone;
  const size_t mask = slots_.size() - 1;
  for (size_t slot = slot_of(address); slots_[slot] != kNone; slot = (slot + 1) & mask) {
    if (blocks_[slots_[slot]].address == address) return slots_[slot];
  }
  return kNone;
}

inline void BlockTable::link_address(BlockIndex index) {
  if ((linked_ + 1) * 2 > slots_.size()) grow_slots();
  const size_t mask = slots_.size() - 1;
  size_t slot = slot_of(blocks_[index].address);
  while (slots_[slot] != kNone) slot = (slot + 1) & mask;
  slots_[slot] = index;
  ++linked_;
}

inline void BlockTable::unlink_address(BlockIndex index) {
  const size_t mask = slots_.size() - 1;
  size_t slot = slot_of(blocks_[index].address);
  while (slots_[slot] != index) slot = (slot + 1) & mask;
  clear_slot(slot);
}

inline BlockIndex BlockTable::take_allocated(uint64_t address) {
  if (linked_ == 0) return kNone;
  const size_t mask = slots_.size() - 1;
  for (size_t slot = slot_of(address); slots_[slot] != kNone; slot = (slot + 1) & mask) {
    const BlockIndex index = slots_[slot];
    if (blocks_[index].address != address) continue;
    clear_slot(slot);
    return index;
  }
  return kNone;
}

// Closes the hole: moves back every follower that may not stand behind a gap.
inline void BlockTable::clear_slot(size_t hole) {
  const size_t mask = slots_.size() - 1;
  for (size_t at = (hole + 1) & mask; slots_[at] != kNone; at = (at + 1) & mask) {
    const size_t home = slot_of(blocks_[slots_[at]].address);
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = kNone;
  --linked_;
}

enum class BlockState : uint8_t { kAllocated, kPendingFree, kInactive };

struct BlockSnapshot {
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t requested_size = 0;  // of an inactive block: of its last use
  BlockState state = BlockState::kInactive;
};

// One cudaMalloc segment, or one contiguous mapped range of an expandable segment.
struct SegmentSnapshot {
  uint64_t address = 0;
  uint64_t total_size = 0;
  uint64_t allocated_size = 0;
  uint64_t active_size = 0;
  uint64_t requested_size = 0;  // of the active blocks
  uint64_t stream = 0;
  PoolKind kind = PoolKind::kSmall;
  PoolId pool;
  bool is_expandable = false;
  std::vector<BlockSnapshot> blocks;  // by address
};

}  // namespace fragscope::model
