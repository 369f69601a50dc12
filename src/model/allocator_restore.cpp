// A state that was found, not made: segments and blocks put where a snapshot has them.
#include <algorithm>

#include "model/caching_allocator.h"
#include "model/rounding.h"

namespace fragscope::model {
namespace {

constexpr uint32_t kLargePool = 0;
constexpr uint32_t kSmallPool = 1;

// Blocks lie one after the other and fill the segment.
bool is_tiled(const SegmentSnapshot& segment) {
  uint64_t at = segment.address;
  for (const BlockSnapshot& block : segment.blocks) {
    if (block.address != at || block.size == 0) return false;
    at += block.size;
  }
  return at - segment.address == segment.total_size && !segment.blocks.empty();
}

}  // namespace

bool CachingAllocator::restore(std::span<const SegmentSnapshot> segments) {
  if (!std::all_of(segments.begin(), segments.end(), is_tiled)) return false;
  for (const SegmentSnapshot& segment : segments) {
    const uint32_t arena = restored_arena(segment);
    const uint32_t pool = arenas_[arena].pool;
    if (segment.is_expandable) {
      restore_mapped(segment, arena);
    } else {
      restore_blocks(segment, arena, kNone, kNone, segment_number());
      stats_.segment.rise(pools_[pool].kind, 1);
      if (segment.total_size >= config_.max_split_size) stats_.oversize_segments.rise(1);
    }
    count_reserved(pool, segment.total_size, 0);
    if (pools_[pool].owner != kNone) ++private_pools_[pools_[pool].owner].segments;
  }
  return true;
}

uint32_t CachingAllocator::restored_arena(const SegmentSnapshot& segment) {
  const bool small = segment.kind == PoolKind::kSmall;
  uint32_t pool = small ? kSmallPool : kLargePool;
  if (!segment.pool.is_default()) {
    if (find_private(segment.pool) == kNone) make_private(segment.pool);
    const PrivatePool& owner = private_pools_[find_private(segment.pool)];
    pool = small ? owner.small : owner.large;
  }
  return arena_of(pool, segment.stream);
}

// Links the segment's blocks behind `previous`; returns the last one.
BlockIndex CachingAllocator::restore_blocks(const SegmentSnapshot& segment, uint32_t arena,
                                            uint32_t range, BlockIndex previous, uint32_t number) {
  const PoolKind kind = pools_[arenas_[arena].pool].kind;
  for (const BlockSnapshot& shot : segment.blocks) {
    const BlockIndex index = blocks_.create();
    Block& block = blocks_[index];
    block.address = shot.address;
    block.size = shot.size;
    block.requested_size = shot.requested_size;
    block.set_arena(arena);
    blocks_.set_range(index, range);
    block.number = number;
    block.previous = previous;
    if (previous != kNone) blocks_[previous].next = index;
    previous = index;
    if (shot.state == BlockState::kInactive) {
      const bool split = segment.blocks.size() > 1;
      if (range == kNone && split) {
        running_.begin_split(kind, shot.size);
      }
      insert_free(index);
      continue;
    }
    block.allocated = true;
    block.active = true;
    blocks_.link_address(index);
    running_.begin_block(kind, shot.size, shot.requested_size);
    if (shot.size >= config_.max_split_size) stats_.oversize_allocations.rise(1);
  }
  return previous;
}

// Where the mapped part lies in an unmapped block of its arena, that block gives way; else a new
// range begins with it.
void CachingAllocator::restore_mapped(const SegmentSnapshot& segment, uint32_t arena) {
  BlockIndex around = kNone;
  for (const BlockIndex index : arenas_[arena].unmapped) {
    const Block& block = blocks_[index];
    const uint64_t inside = segment.address - block.address;
    if (inside < block.size && segment.total_size <= block.size - inside) around = index;
  }
  if (around == kNone) {
    around = restored_range(segment, arena);
  } else {
    erase_unmapped(around);
  }
  Block& hole = blocks_[around];
  const uint64_t end = hole.address + hole.size;
  const uint64_t segment_end = segment.address + segment.total_size;
  const uint32_t range = blocks_.range(around);
  const uint32_t number = hole.number;
  const BlockIndex after = hole.next;
  BlockIndex before = hole.previous;
  if (segment.address > hole.address) {
    hole.size = segment.address - hole.address;
    insert_unmapped(around);
    before = around;
  } else {
    blocks_.destroy(around);
  }
  BlockIndex last = restore_blocks(segment, arena, range, before, number);
  if (segment_end < end) {
    const BlockIndex rest = piece_of(last, segment_end, end - segment_end, /*mapped=*/false);
    blocks_[rest].previous = last;
    blocks_[last].next = rest;
    insert_unmapped(rest);
    last = rest;
  }
  blocks_[last].next = after;
  if (after != kNone) blocks_[after].previous = last;
}

BlockIndex CachingAllocator::restored_range(const SegmentSnapshot& segment, uint32_t arena) {
  Range range;
  const bool small = segment.kind == PoolKind::kSmall;
  range.address = segment.address;
  range.page = expandable_page(config_, small);
  range.bytes = std::max(expandable_range_bytes(config_, small, provider_.memory_info().total),
                         segment.total_size);
  range.alive = true;
  ranges_.push_back(range);
  const BlockIndex index = blocks_.create();
  Block& block = blocks_[index];
  block.address = range.address;
  block.size = range.bytes;
  block.set_arena(arena);
  blocks_.set_range(index, static_cast<uint32_t>(ranges_.size() - 1));
  block.number = segment_number();
  return index;
}

}  // namespace fragscope::model
