// Graph trees: the state of a private pool is kept after each recording and put back before the
// next (getCheckpointState, setCheckpointPoolState).
#include <algorithm>
#include <unordered_map>

#include "model/caching_allocator.h"

namespace fragscope::model {

// First blocks of the pool's segments, by address. (PyTorch's order is that of a hash of pointers.)
std::vector<BlockIndex> CachingAllocator::first_blocks(const PrivatePool& pool) const {
  std::vector<BlockIndex> heads;
  for (BlockIndex index = 0; index < blocks_.limit(); ++index) {
    const Block& block = blocks_[index];
    if (!block.in_use || block.previous != kNone || !block.mapped) continue;
    const uint32_t part = arenas_[block.arena].pool;
    if (part == pool.small || part == pool.large) heads.push_back(index);
  }
  std::sort(heads.begin(), heads.end(),
            [&](BlockIndex a, BlockIndex b) { return blocks_[a].address < blocks_[b].address; });
  return heads;
}

const CachingAllocator::PrivatePool* CachingAllocator::pool_to_checkpoint(PoolId id) {
  const uint32_t index = find_private(id);
  if (index == kNone) {
    last_error_ = "Could not find the private pool";
    return nullptr;
  }
  if (freeable_.contains(index)) {
    last_error_ = "Not expected to checkpoint freeable graph";
    return nullptr;
  }
  return &private_pools_[index];
}

std::optional<PoolCheckpoint> CachingAllocator::checkpoint(PoolId id) {
  if (profile_.checkpoint_records_events) insert_deferred_events();
  const PrivatePool* const pool = pool_to_checkpoint(id);
  if (pool == nullptr) return std::nullopt;
  PoolCheckpoint state{id, {}};
  for (const BlockIndex head : first_blocks(*pool)) {
    std::vector<CheckpointBlock>& segment = state.segments.emplace_back();
    for (BlockIndex at = head; at != kNone; at = blocks_[at].next) {
      if (blocks_.events(at) != 0) {
        last_error_ = "Events should have synchronized when checkpointing block";
        return std::nullopt;
      }
      segment.push_back({blocks_[at].address, blocks_[at].size, blocks_[at].allocated});
    }
  }
  return state;
}

bool CachingAllocator::restore_checkpoint(const PoolCheckpoint& state, CheckpointDelta& delta) {
  const PrivatePool* const pool = pool_to_checkpoint(state.pool);
  if (pool == nullptr) return false;
  // Several segments get their new blocks in the order of a hash of pointers: whose have the lower
  // creation numbers, and are preferred by later searches, nobody can tell.
  library_undefined_ |= profile_.tie == TieRule::kBlockNumber && state.segments.size() > 1;
  free_all(*pool, delta);
  std::unordered_map<uint64_t, BlockIndex> free_blocks;
  for (const BlockIndex head : first_blocks(*pool)) {
    for (BlockIndex at = head; at != kNone; at = blocks_[at].next) {
      if (!blocks_[at].active && blocks_[at].mapped) free_blocks[blocks_[at].address] = at;
    }
  }
  for (const std::vector<CheckpointBlock>& segment : state.segments) {
    const auto found = free_blocks.find(segment.front().address);
    if (found != free_blocks.end() && put_back(segment, found->second, delta)) continue;
    // PyTorch fails a check here and leaves the rest of the pool as it is by then.
    last_error_ = "The pool cannot be put back";
    library_undefined_ = true;
    return false;
  }
  return true;
}

void CachingAllocator::free_all(const PrivatePool& pool, CheckpointDelta& delta) {
  std::vector<BlockIndex> allocated;
  for (const BlockIndex head : first_blocks(pool)) {
    for (BlockIndex at = head; at != kNone; at = blocks_[at].next) {
      if (blocks_[at].allocated) allocated.push_back(at);
    }
  }
  for (const BlockIndex index : allocated) {
    delta.freed.push_back(blocks_[index].address);
    free_block(index);
  }
}

// Cuts the free segment that begins with `at` into the blocks it had, then frees those that were
// free. False: it no longer is what it was.
bool CachingAllocator::put_back(const std::vector<CheckpointBlock>& blocks, BlockIndex at,
                                CheckpointDelta& delta) {
  std::vector<BlockIndex> taken;
  for (const CheckpointBlock& wanted : blocks) {
    const bool unmapped_rest = &wanted == &blocks.back() && at != kNone && !blocks_[at].mapped;
    if (unmapped_rest) {
      return free_unheld(blocks, taken, delta);
    }
    if (at == kNone || blocks_[at].active || !blocks_[at].mapped) return false;
    if (blocks_[at].size < wanted.size || blocks_[at].address != wanted.address) return false;
    Request request;
    request.requested = request.rounded = wanted.size;
    request.arena = blocks_[at].arena;
    request.split = blocks_[at].size > wanted.size;
    taken.push_back(finish_malloc(request, at).block);
    at = blocks_[taken.back()].next;
  }
  if (at != kNone) return false;
  return free_unheld(blocks, taken, delta);
}

// No block of a checkpoint waits for events, so those that were free have no free neighbours: each
// comes back as large as it was. Up to 2.3 one that had been freed under a scope could lie beside
// another: PyTorch finds the two joined and fails a check.
bool CachingAllocator::free_unheld(const std::vector<CheckpointBlock>& blocks,
                                   const std::vector<BlockIndex>& taken, CheckpointDelta& delta) {
  for (size_t i = 0; i < taken.size(); ++i) {
    if (blocks[i].allocated) {
      delta.allocated.push_back(blocks[i].address);
      continue;
    }
    free_block(taken[i]);
    if (i > 0 && !blocks[i - 1].allocated) return false;
  }
  return true;
}

}  // namespace fragscope::model
