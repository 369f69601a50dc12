// The allocator's state in the form of torch.cuda.memory_snapshot().
#include <algorithm>

#include "model/caching_allocator.h"

namespace fragscope::model {
namespace {

BlockSnapshot snapshot_of(const BlockTable& blocks, BlockIndex index) {
  const Block& block = blocks[index];
  BlockState state = BlockState::kInactive;
  if (block.allocated) {
    state = BlockState::kAllocated;
  } else if (blocks.events(index) > 0 || block.has_uses) {
    state = BlockState::kPendingFree;
  }
  return {block.address, block.size, block.requested_size, state};
}

void add_block(SegmentSnapshot& segment, const BlockSnapshot& shot) {
  segment.total_size += shot.size;
  if (shot.state == BlockState::kAllocated) segment.allocated_size += shot.size;
  if (shot.state != BlockState::kInactive) {
    segment.active_size += shot.size;
    segment.requested_size += shot.requested_size;
  }
  segment.blocks.push_back(shot);
}

}  // namespace

std::vector<SegmentSnapshot> CachingAllocator::segments() const {
  std::vector<SegmentSnapshot> result;
  for (BlockIndex index = 0; index < blocks_.limit(); ++index) {
    const Block& head = blocks_[index];
    // A segment, or a mapped range, starts where nothing mapped lies before.
    if (!head.in_use || !head.mapped) continue;
    if (head.previous != kNone && blocks_[head.previous].mapped) continue;
    const Arena& arena = arenas_[head.arena];
    const BlockPool& pool = pools_[arena.pool];
    SegmentSnapshot& segment = result.emplace_back();
    segment.address = head.address;
    segment.stream = arena.stream;
    segment.kind = pool.kind;
    if (pool.owner != kNone) segment.pool = private_pools_[pool.owner].id;
    segment.is_expandable = head.expandable;
    for (BlockIndex at = index; at != kNone && blocks_[at].mapped; at = blocks_[at].next) {
      add_block(segment, snapshot_of(blocks_, at));
    }
  }
  std::sort(result.begin(), result.end(), [](const SegmentSnapshot& a, const SegmentSnapshot& b) {
    return a.address < b.address;
  });
  return result;
}

}  // namespace fragscope::model
