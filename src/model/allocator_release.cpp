// What the allocator gives back to the device: garbage collection, the oversize release, the flush.
#include <algorithm>
#include <utility>

#include "model/caching_allocator.h"

namespace fragscope::model {
namespace {

constexpr uint32_t kLargePool = 0;
constexpr uint32_t kSmallPool = 1;

}  // namespace

// garbage_collect_cached_blocks: down to the threshold.
void CachingAllocator::collect_garbage() {
  const auto limit =
      static_cast<uint64_t>(config_.garbage_collection_threshold * static_cast<double>(*allowed_));
  if (reserved() > limit) collect_garbage(reserved() - limit);
}

void CachingAllocator::collect_garbage(uint64_t bytes) {
  for (const BlockIndex index : garbage(bytes)) release_segment(index);
}

// Unsplit free blocks of the default large pool, those first that have been passed over by at least
// the average number of requests.
std::vector<BlockIndex> CachingAllocator::garbage(uint64_t bytes) const {
  struct Candidate {
    BlockIndex block = kNone;
    uint32_t age{};
  };
  const BlockPool& pool = pools_[kLargePool];
  std::vector<Candidate> candidates;
  uint64_t total_age = 0;
  uint64_t count = 0;
  for (const uint32_t arena : pool.arenas) {
    const FreeSet& set = arenas_[arena].free;
    for (BlockIndex at = set.first(); at != kNone; at = set.after(blocks_.slab(), at)) {
      const Block& block = blocks_[at];
      if (block.is_split()) continue;
      const uint32_t age = pool.calls - blocks_.gc_base(at);
      total_age += age;
      ++count;
      if (!block.expandable) candidates.push_back({at, age});
    }
  }
  std::vector<BlockIndex> chosen;
  uint64_t reclaimed = 0;
  for (size_t before = SIZE_MAX; reclaimed < bytes && count > 0 && chosen.size() != before;) {
    before = chosen.size();
    const double limit = static_cast<double>(total_age) / static_cast<double>(count);
    const auto old = [&](const Candidate& c) { return static_cast<double>(c.age) >= limit; };
    for (const Candidate& candidate : candidates) {
      if (!old(candidate)) continue;
      chosen.push_back(candidate.block);
      reclaimed += blocks_[candidate.block].size;
      total_age -= candidate.age;
      --count;
    }
    std::erase_if(candidates, old);
  }
  return chosen;
}

// release_available_cached_blocks: with a split limit, one cached block that is large enough goes
// back, else the largest ones until together they are.
CachingAllocator::Release CachingAllocator::release_oversize(const Request& request) {
  const uint64_t needed = std::max(request.rounded, config_.max_split_size);
  const FreeSet& set = arenas_[request.arena].free;
  const bool asserts = profile_.expandable_release_asserts;
  const BlockIndex enough = set.lower_bound(blocks_.slab(), needed);
  if (enough != kNone && (asserts || !blocks_[enough].expandable)) {
    if (blocks_[enough].expandable) {
      last_error_ = "!block->expandable_segment_ INTERNAL ASSERT FAILED";
      return Release::kAssertion;
    }
    release_segment(enough);
    return Release::kReleased;
  }
  std::vector<BlockIndex> chosen;
  uint64_t released = 0;
  BlockIndex at = enough == kNone ? set.last(blocks_.slab()) : set.before(blocks_.slab(), enough);
  for (; at != kNone && released < needed; at = set.before(blocks_.slab(), at)) {
    const Block& block = blocks_[at];
    if (block.size < config_.max_split_size) break;
    if (block.expandable && !asserts) continue;
    chosen.push_back(at);
    released += block.size;
  }
  for (const BlockIndex index : chosen) {
    if (blocks_[index].expandable) {
      last_error_ = "!block->expandable_segment_ INTERNAL ASSERT FAILED";
      return Release::kAssertion;
    }
    release_segment(index);
  }
  return released >= needed ? Release::kReleased : Release::kNothing;
}

// release_cached_blocks: everything that has no neighbours goes back to the device.
void CachingAllocator::release_cached(PoolId id) {
  if (id.is_default() && !scope_blocks()) {
    synchronize_events(kNone);
    release_pool_blocks(kLargePool);
    release_pool_blocks(kSmallPool);
  }
  for (const uint32_t index : freeable_.in_order()) {
    PrivatePool& pool = private_pools_[index];
    if (!id.is_default()) {
      if (pool.id != id) continue;
      synchronize_events(index);
    }
    release_private(index);
  }
}

void CachingAllocator::release_private(uint32_t index) {
  PrivatePool& pool = private_pools_[index];
  release_pool_blocks(pool.small);
  release_pool_blocks(pool.large);
  if (pool.segments != 0) return;
  // PyTorch counts requests that mapped memory, and pieces that were unmapped, which need not be
  // as many: the pool can be dropped while blocks of it live.
  library_undefined_ |= has_blocks(pool.small) || has_blocks(pool.large);
  // Ranges in which nothing is mapped are forgotten; their address space is never given back.
  for (const uint32_t part : {pool.small, pool.large}) {
    for (const uint32_t arena : pools_[part].arenas) {
      for (const BlockIndex gone : std::exchange(arenas_[arena].unmapped, {})) {
        if (!blocks_[gone].is_split()) blocks_.destroy(gone);
      }
    }
  }
  pool.alive = false;
  freeable_.erase(index);
}

bool CachingAllocator::has_blocks(uint32_t pool) const {
  for (BlockIndex index = 0; index < blocks_.limit(); ++index) {
    const Block& block = blocks_[index];
    if (block.in_use && block.mapped && arenas_[block.arena].pool == pool) return true;
  }
  return false;
}

void CachingAllocator::release_pool_blocks(uint32_t pool) {
  std::vector<BlockIndex> whole;
  std::vector<BlockIndex> mapped;
  for (const uint32_t arena : pools_[pool].arenas) {
    const FreeSet& set = arenas_[arena].free;
    for (BlockIndex at = set.first(); at != kNone; at = set.after(blocks_.slab(), at)) {
      if (blocks_[at].expandable) {
        mapped.push_back(at);
      } else if (!blocks_[at].is_split()) {
        whole.push_back(at);
      }
    }
  }
  for (const BlockIndex index : whole) release_segment(index);
  for (const BlockIndex index : mapped) unmap_block(index);
}

// release_block: one whole cudaMalloc segment.
void CachingAllocator::release_segment(BlockIndex index) {
  erase_free(index);
  const Block block = blocks_[index];
  const uint32_t pool = arenas_[block.arena].pool;
  trace(TraceAction::kSegmentFree, block, block.size);
  provider_.device_free(block.address, block.size);
  count_reserved(pool, 0, block.size);
  stats_.segment.fall(pools_[pool].kind, 1);
  if (block.size >= config_.max_split_size) stats_.oversize_segments.fall(1);
  ++stats_.num_device_free;
  if (pools_[pool].owner != kNone) --private_pools_[pools_[pool].owner].segments;
  blocks_.destroy(index);
}

EmptyCacheOutcome CachingAllocator::empty_cache(PoolId pool) {
  if (scope_blocks() && profile_.scoped_empty_cache == ScopedEmptyCache::kAssertion) {
    ++stats_.num_sync_all_streams;
    last_error_ = "captures_underway.empty() INTERNAL ASSERT FAILED";
    return EmptyCacheOutcome::kAssertion;
  }
  release_cached(pool);
  return EmptyCacheOutcome::kDone;
}

}  // namespace fragscope::model
