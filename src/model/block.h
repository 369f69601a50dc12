// Blocks of the caching allocator: subranges of segments, kept by index in one slab.
#pragma once

#include <cstdint>
#include <vector>

#include "model/stats.h"

// On the way of every request or free: the calls between these functions would cost as much as they
// do.
#define FRAGSCOPE_HOT [[gnu::always_inline]] inline

namespace fragscope::model {

using BlockIndex = uint32_t;
inline constexpr uint32_t kNone = UINT32_MAX;  // no block, pool, segment, …

// One cache line: what a request or a free needs of a block.
struct alignas(64) Block {
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t requested_size = 0;  // of the last use
  BlockIndex previous = kNone;  // neighbours in the same segment
  BlockIndex next = kNone;
  BlockIndex free_previous = kNone;  // links of the free set
  BlockIndex free_next = kNone;
  uint32_t arena = kNone;    // its pool and stream
  uint32_t number = 0;       // creation number, see TieRule; 0 where addresses decide
  uint32_t range = kNone;    // its expandable segment
  uint32_t gc_base = 0;      // the pool's call counter when the block became free
  uint32_t generation = 0;   // grows when the index is used again
  uint16_t event_count = 0;  // outstanding events
  bool in_use : 1 = false;   // the slab entry is a block
  bool allocated : 1 = false;
  bool active : 1 = false;  // allocated, or freed and waiting for events
  bool free : 1 = false;    // in a free set
  bool mapped : 1 = true;
  bool has_uses : 1 = false;  // recorded on other streams
  bool deferred : 1 = false;  // freed under a scope, no events yet

  bool is_split() const { return previous != kNone || next != kNone; }
};
static_assert(sizeof(Block) == 64);

// All blocks of one allocator, and the map from addresses of allocated blocks to them. The map is
// made when it is asked for the first time: whoever keeps block indexes never pays for it.
class BlockTable {
 public:
  BlockIndex create();
  void destroy(BlockIndex index);
  Block& operator[](BlockIndex index) { return blocks_[index]; }
  const Block& operator[](BlockIndex index) const { return blocks_[index]; }
  // All entries, by index; moves with create().
  Block* slab() { return blocks_.data(); }
  const Block* slab() const { return blocks_.data(); }
  BlockIndex limit() const { return static_cast<BlockIndex>(blocks_.size()); }

  // The allocated block that starts at `address`, or kNone.
  BlockIndex find_allocated(uint64_t address) const;
  // `index` has become an allocated block, is about to be one no longer.
  void link_address(BlockIndex index) {
    if (has_map_) link(index);
  }
  void unlink_address(BlockIndex index) {
    if (has_map_) unlink(index);
  }
  // find_allocated() and unlink_address() in one.
  BlockIndex take_allocated(uint64_t address);

  size_t bytes() const;  // of memory that the table holds

 private:
  struct Slot {
    uint32_t hash = 0;
    BlockIndex block = kNone;
  };
  // Odd, and spreads the multiples of 512 over the high bits.
  static uint32_t hash_of(uint64_t address) {
    // tuning: by any hash of the address the map finds the same blocks.
    return static_cast<uint32_t>((address * 0x9e37'79b9'7f4a'7c15ull) >> 32);
  }
  size_t slot_of(uint32_t hash) const { return hash >> shift_; }
  size_t find_slot(uint64_t address) const;
  void link(BlockIndex index) const;
  void unlink(BlockIndex index);
  void clear_slot(size_t hole);
  void grow_slots() const;
  void make_map() const;

  std::vector<Block> blocks_;
  BlockIndex unused_ = kNone;  // chain of unused entries, by `next`
  // The map, see above: open addressing by the high bits of the hash.
  mutable std::vector<Slot> slots_;
  mutable size_t linked_ = 0;
  mutable unsigned shift_ = 32;
  mutable bool has_map_ = false;
};

// The quick ways are here so that the allocator has them without a call.

FRAGSCOPE_HOT BlockIndex BlockTable::create() {
  if (unused_ == kNone) [[unlikely]] {
    blocks_.emplace_back().in_use = true;
    return static_cast<BlockIndex>(blocks_.size() - 1);
  }
  const BlockIndex index = unused_;
  Block& block = blocks_[index];
  unused_ = block.next;
  const uint32_t generation = block.generation + 1;
  block = Block{};
  block.generation = generation;
  block.in_use = true;
  return index;
}

FRAGSCOPE_HOT void BlockTable::destroy(BlockIndex index) {
  Block& block = blocks_[index];
  block.in_use = false;
  block.next = unused_;
  unused_ = index;
}

// Of the allocated block at `address`, or of the gap where its search ends.
FRAGSCOPE_HOT size_t BlockTable::find_slot(uint64_t address) const {
  const uint32_t hash = hash_of(address);
  const size_t mask = slots_.size() - 1;
  size_t slot = slot_of(hash);
  while (slots_[slot].block != kNone &&
         (slots_[slot].hash != hash || blocks_[slots_[slot].block].address != address)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

inline BlockIndex BlockTable::find_allocated(uint64_t address) const {
  if (!has_map_) make_map();
  return slots_[find_slot(address)].block;
}

FRAGSCOPE_HOT void BlockTable::link(BlockIndex index) const {
  if ((linked_ + 1) * 2 > slots_.size()) grow_slots();
  const size_t mask = slots_.size() - 1;
  const uint32_t hash = hash_of(blocks_[index].address);
  size_t slot = slot_of(hash);
  while (slots_[slot].block != kNone) slot = (slot + 1) & mask;
  slots_[slot] = {hash, index};
  ++linked_;
}

inline void BlockTable::unlink(BlockIndex index) { clear_slot(find_slot(blocks_[index].address)); }

FRAGSCOPE_HOT BlockIndex BlockTable::take_allocated(uint64_t address) {
  if (!has_map_) make_map();
  const size_t slot = find_slot(address);
  const BlockIndex index = slots_[slot].block;
  if (index != kNone) clear_slot(slot);
  return index;
}

// Closes the hole: moves back every follower that may not stand behind a gap.
FRAGSCOPE_HOT void BlockTable::clear_slot(size_t hole) {
  const size_t mask = slots_.size() - 1;
  for (size_t at = (hole + 1) & mask; slots_[at].block != kNone; at = (at + 1) & mask) {
    const size_t home = slot_of(slots_[at].hash);
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole].block = kNone;
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
