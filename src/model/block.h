// Blocks of the caching allocator: subranges of segments, kept by index in one slab.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <vector>

#include "model/stats.h"

// On the way of every request or free: the calls between these functions would cost as much as they
// do.
#define FRAGSCOPE_HOT [[gnu::always_inline]] inline

namespace fragscope::model {

using BlockIndex = uint32_t;
inline constexpr uint32_t kNone = UINT32_MAX;  // no block, pool, segment, …

inline constexpr unsigned kArenaBits = 24;
inline constexpr uint32_t kMaxArenas = (1u << kArenaBits) - 1;  // as many as Block::arena can name
static_assert(kMaxArenas >> kArenaBits == 0 && kMaxArenas >> (kArenaBits - 1) == 1);

// What every request or free needs of a block. What only some programs need is in columns of the
// BlockTable.
struct Block {
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t requested_size = 0;  // of the last use
  BlockIndex previous = kNone;  // neighbours in the same segment
  BlockIndex next = kNone;
  BlockIndex free_previous = kNone;  // links of the free set
  BlockIndex free_next = kNone;      // also the chain of an allocated block in the address map
  uint32_t number = 0;               // creation number, see TieRule; 0 where addresses decide
  uint32_t arena : kArenaBits = kMaxArenas;  // its pool and stream
  bool in_use : 1 = false;                   // the slab entry is a block
  bool allocated : 1 = false;
  bool active : 1 = false;  // allocated, or freed and waiting for events
  bool free : 1 = false;    // in a free set
  bool mapped : 1 = true;
  bool has_uses : 1 = false;    // recorded on other streams
  bool expandable : 1 = false;  // of an expandable segment, see BlockTable::range()

  bool is_split() const { return (previous & next) != kNone; }
  void set_arena(uint32_t index) { arena = index & kMaxArenas; }
};
static_assert(sizeof(Block) == 48 && std::is_trivially_copyable_v<Block>);

// All blocks of one allocator, and the map from addresses of allocated blocks to them. What is not
// used takes no memory: the columns are made by the first block that needs one, the map when it is
// asked for the first time. The slab grows by a thirty-second.
class BlockTable {
 public:
  BlockIndex create();
  // create() for who writes the whole block: `in_use` must be set.
  BlockIndex create_raw();
  void destroy(BlockIndex index);
  Block& operator[](BlockIndex index) { return slab_[index]; }
  const Block& operator[](BlockIndex index) const { return slab_[index]; }
  // All entries, by index; moves with create().
  Block* slab() { return slab_.get(); }
  const Block* slab() const { return slab_.get(); }
  BlockIndex limit() const { return size_; }

  // The block's expandable segment, or kNone.
  uint32_t range(BlockIndex index) const {
    return slab_[index].expandable ? ranges_[index] : kNone;
  }
  void set_range(BlockIndex index, uint32_t range);
  // The pool's call counter when the block became free.
  uint32_t gc_base(BlockIndex index) const { return at(gc_bases_, index); }
  void set_gc_base(BlockIndex index, uint32_t calls) { entry(gc_bases_, index) = calls; }
  // Outstanding events, and how many times blocks at this index have waited for such.
  uint32_t events(BlockIndex index) const { return at(waits_, index).events; }
  uint32_t generation(BlockIndex index) const { return at(waits_, index).generation; }
  void add_event(BlockIndex index) { ++entry(waits_, index).events; }
  void remove_event(BlockIndex index) { --entry(waits_, index).events; }
  void end_wait(BlockIndex index) { ++entry(waits_, index).generation; }

  // The allocated block that starts at `address`, or kNone.
  BlockIndex find_allocated(uint64_t address) const;
  // `index` has become an allocated block, is about to be one no longer.
  void link_address(BlockIndex index) {
    if (has_map_) [[unlikely]]
      link(index);
  }
  void unlink_address(BlockIndex index) {
    if (has_map_) [[unlikely]]
      unlink(index);
  }
  // find_allocated() and unlink_address() in one.
  BlockIndex take_allocated(uint64_t address);

  size_t bytes() const;  // of memory that the table holds

 private:
  struct Wait {
    uint32_t events = 0;
    uint32_t generation = 0;
  };
  struct Release {
    void operator()(Block* slab) const { std::free(slab); }
  };
  template <typename T>
  static T at(const std::vector<T>& column, BlockIndex index) {
    return index < column.size() ? column[index] : T{};
  }
  template <typename T>
  T& entry(std::vector<T>& column, BlockIndex index) {
    if (index >= column.size()) {
      column.reserve(capacity_);  // tuning: resize() alone would double it
      column.resize(capacity_);
    }
    return column[index];
  }
  void grow_slab();

  // Odd, and spreads the multiples of 512 over the high bits.
  size_t bucket_of(uint64_t address) const {
    return static_cast<uint32_t>((address * 0x9e37'79b9'7f4a'7c15ull) >> 32) >> shift_;
  }
  void link(BlockIndex index) const;
  void unlink(BlockIndex index);
  void grow_map() const;
  void make_map() const;

  std::unique_ptr<Block[], Release> slab_;
  BlockIndex size_ = 0;
  BlockIndex capacity_ = 0;
  BlockIndex unused_ = kNone;  // chain of unused entries, by `next`
  std::vector<uint32_t> ranges_;
  std::vector<uint32_t> gc_bases_;
  std::vector<Wait> waits_;
  // The map, see above: chains through the blocks, by the high bits of the hash.
  mutable std::vector<BlockIndex> buckets_;
  mutable size_t linked_ = 0;
  mutable unsigned shift_ = 32;
  mutable bool has_map_ = false;
};

// The quick ways are here so that the allocator has them without a call.

FRAGSCOPE_HOT BlockIndex BlockTable::create_raw() {
  BlockIndex index = unused_;
  if (index == kNone) [[unlikely]] {
    if (size_ == capacity_) grow_slab();
    index = size_++;
  } else {
    unused_ = slab_[index].next;
  }
  return index;
}

inline BlockIndex BlockTable::create() {
  const BlockIndex index = create_raw();
  slab_[index] = Block{};
  slab_[index].in_use = true;
  return index;
}

FRAGSCOPE_HOT void BlockTable::destroy(BlockIndex index) {
  Block& block = slab_[index];
  block.in_use = false;
  block.next = unused_;
  unused_ = index;
}

FRAGSCOPE_HOT BlockIndex BlockTable::find_allocated(uint64_t address) const {
  if (!has_map_) [[unlikely]]
    make_map();
  BlockIndex at = buckets_[bucket_of(address)];
  while (at != kNone && slab_[at].address != address) at = slab_[at].free_next;
  return at;
}

FRAGSCOPE_HOT void BlockTable::link(BlockIndex index) const {
  // tuning: when the map grows
  if (linked_ == 2 * buckets_.size()) [[unlikely]]
    grow_map();
  BlockIndex& bucket = buckets_[bucket_of(slab_[index].address)];
  slab_[index].free_next = bucket;
  bucket = index;
  ++linked_;  // tuning: when the map grows
}

inline void BlockTable::unlink(BlockIndex index) {
  BlockIndex* place = &buckets_[bucket_of(slab_[index].address)];
  while (*place != index) place = &slab_[*place].free_next;
  *place = slab_[index].free_next;
  --linked_;  // tuning: when the map grows
}

FRAGSCOPE_HOT BlockIndex BlockTable::take_allocated(uint64_t address) {
  if (!has_map_) [[unlikely]]
    make_map();
  BlockIndex* place = &buckets_[bucket_of(address)];
  while (*place != kNone && slab_[*place].address != address) place = &slab_[*place].free_next;
  const BlockIndex index = *place;
  if (index == kNone) return kNone;
  *place = slab_[index].free_next;
  --linked_;  // tuning: when the map grows
  return index;
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
