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

 private:
  size_t slot_of(uint64_t address) const;
  void grow_slots();

  std::vector<Block> blocks_;
  std::vector<BlockIndex> unused_;
  std::vector<BlockIndex> slots_;  // open addressing by address
  size_t linked_ = 0;
  unsigned shift_ = 64;
};

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
