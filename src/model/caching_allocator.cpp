// Requests: search, split, new segments, free and merge. DeviceCachingAllocator::malloc and free.
#include "model/caching_allocator.h"

#include "model/rounding.h"

namespace fragscope::model {
CachingAllocator::CachingAllocator(const AllocatorConfig& config, const VersionProfile& profile,
                                   SegmentProvider& provider)
    : config_(config), profile_(profile), provider_(provider) {
  make_pool(PoolKind::kLarge, kNone);
  make_pool(PoolKind::kSmall, kNone);
  if (config.max_split_size != kUnlimitedSplit) {
    stats_.max_split_size = static_cast<int64_t>(config.max_split_size);
  }
  if (config.per_process_memory_fraction) set_memory_fraction(*config.per_process_memory_fraction);
}

uint64_t CachingAllocator::round_size(uint64_t requested) const {
  return round_request(requested, config_, profile_);
}

uint64_t CachingAllocator::segment_size(uint64_t rounded) const {
  return segment_bytes(rounded, config_);
}

FreeEntry CachingAllocator::entry_of(BlockIndex index) const {
  const Block& block = blocks_[index];
  const uint32_t tie = profile_.tie == TieRule::kAddress ? 0 : block.number;
  return {block.size, block.address, tie, index};
}

// The block is free again. `held` is an entry of the set that it takes the place of, if any.
void CachingAllocator::insert_free(BlockIndex index, FreeSet::Position held) {
  Block& block = blocks_[index];
  Arena& arena = arenas_[block.arena];
  block.gc_base = pools_[arena.pool].calls;
  if (held == FreeSet::Position{}) {
    arena.free.insert(entry_of(index));
  } else {
    arena.free.replace(held, entry_of(index));
  }
}

uint32_t CachingAllocator::number_for_new(uint32_t inherited) {
  return profile_.tie == TieRule::kBlockNumber ? next_number_++ : inherited;
}

CachingAllocator::Request CachingAllocator::make_request(uint64_t requested, uint64_t stream) {
  Request request;
  request.requested = requested;
  request.stream = stream;
  request.rounded = round_size(requested);
  request.arena = arena_of(pool_for(request.rounded, stream), stream);
  request.expandable = config_.expandable_segments;
  return request;
}

MallocResult CachingAllocator::malloc(uint64_t requested, uint64_t stream) {
  if (requested == 0) return {};
  if (events_outstanding() && !scope_blocks()) process_events();
  Request request = make_request(requested, stream);
  const FreeSet::Position at = find_free(request);
  if (at == FreeSet::Position{}) return malloc_uncached(request);
  return finish_malloc(request, arenas_[request.arena].free.at(at).block, at);
}

// The free block that the request gets, still in its set; the end if there is none.
FreeSet::Position CachingAllocator::find_free(const Request& request) {
  Arena& arena = arenas_[request.arena];
  if (counts_ages()) ++pools_[arena.pool].calls;
  FreeSet::Position at = arena.free.lower_bound(request.rounded);
  if (at == arena.free.end()) return at;
  if (blocks_[arena.free.at(at).block].range != kNone) {
    at = skip_expandable(arena.free, at, request);
    if (at == arena.free.end()) return at;
  }
  return refuses_oversize(request.rounded, arena.free.at(at).size) ? arena.free.end() : at;
}

BlockIndex CachingAllocator::take_free(const Request& request) {
  const FreeSet::Position at = find_free(request);
  if (at == FreeSet::Position{}) return kNone;
  FreeSet& set = arenas_[request.arena].free;
  const BlockIndex found = set.at(at).block;
  set.erase_at(at);
  return found;
}

// An expandable block counts as large as it can grow: prefer one without a huge unmapped tail. With
// the option off, expandable blocks are passed over.
FreeSet::Position CachingAllocator::skip_expandable(const FreeSet& set, FreeSet::Position at,
                                                    const Request& request) const {
  const auto block_at = [&](FreeSet::Position p) -> const Block& {
    return blocks_[set.at(p).block];
  };
  if (!request.expandable) {
    do {
      at = set.after(at);
    } while (at != set.end() && block_at(at).range != kNone);
    return at;
  }
  const auto reach = [&](const Block& block) {
    if (block.next == kNone || blocks_[block.next].mapped) return block.size;
    return block.size + blocks_[block.next].size;
  };
  for (auto next = set.after(at); next != set.end() && block_at(at).range != kNone &&
                                  reach(block_at(next)) < reach(block_at(at));
       next = set.after(next)) {
    at = next;
  }
  return at;
}

bool CachingAllocator::refuses_oversize(uint64_t rounded, uint64_t block_size) const {
  if (rounded < config_.max_split_size) return block_size >= config_.max_split_size;
  return block_size >= rounded + config_.max_non_split_rounding;
}

// The free list has missed: garbage collection, a new segment, releases, the flush, the error.
MallocResult CachingAllocator::malloc_uncached(Request& request) {
  request.segment = segment_size(request.rounded);
  if (collects_garbage()) collect_garbage();
  BlockIndex found = kNone;
  Attempt attempt = new_segment(request, false, found);
  if (attempt == Attempt::kFailed && profile_.fallback == FallbackRule::kBeforeRelease) {
    attempt = try_fallback(request, found);
  }
  if (attempt == Attempt::kFailed) {
    const Release released = release_oversize(request);
    if (released == Release::kAssertion) attempt = Attempt::kError;
    if (released == Release::kReleased) attempt = new_segment(request, false, found);
  }
  if (attempt == Attempt::kFailed && !scope_blocks()) {
    release_cached({});
    attempt = new_segment(request, true, found);
  }
  if (attempt == Attempt::kFailed && profile_.fallback == FallbackRule::kAfterFlush) {
    attempt = try_fallback(request, found);
  }
  switch (attempt) {
    case Attempt::kGot:
      return finish_malloc(request, found);
    case Attempt::kRejected:
      return reject(request);
    case Attempt::kError:
      return {MallocOutcome::kAssertion, kNone, 0, 0};
    case Attempt::kFailed:
      break;
  }
  return out_of_memory(request);
}

CachingAllocator::Attempt CachingAllocator::new_segment(const Request& request, bool retry,
                                                        BlockIndex& found) {
  if (retry) ++stats_.num_alloc_retries;
  const uint64_t needed = reserved() + request.segment;
  if (allowed_ && needed > *allowed_) return Attempt::kFailed;
  if (profile_.has_throw_on_oom && config_.throw_on_cudamalloc_oom) {
    // The share is the option's, also when set_memory_fraction() has set another.
    const double share = config_.per_process_memory_fraction.value_or(1.0);
    const auto total = static_cast<double>(provider_.memory_info().total);
    if (needed > static_cast<uint64_t>(share * total)) return Attempt::kRejected;
  }
  const bool is_private = pools_[arenas_[request.arena].pool].owner != kNone;
  if (request.expandable && (!is_private || profile_.expandable_in_private_pools)) {
    last_error_ = {};
    found = take_expandable(request);
    if (!last_error_.empty()) return Attempt::kError;
    if (found != kNone && is_private) {
      ++private_pools_[pools_[arenas_[request.arena].pool].owner].segments;
    }
  } else {
    found = device_segment(request);
  }
  return found == kNone ? Attempt::kFailed : Attempt::kGot;
}

BlockIndex CachingAllocator::device_segment(const Request& request) {
  const std::optional<uint64_t> address = provider_.device_malloc(request.segment);
  if (!address) return kNone;
  const uint32_t pool = arenas_[request.arena].pool;
  if (pools_[pool].owner != kNone) ++private_pools_[pools_[pool].owner].segments;
  const BlockIndex index = blocks_.create();
  Block& block = blocks_[index];
  block.address = *address;
  block.size = request.segment;
  block.arena = request.arena;
  block.number = next_number_++;
  stats_.segment.rise(pools_[pool].kind, 1);
  count_reserved(pool, request.segment, 0);
  if (request.segment >= config_.max_split_size) stats_.oversize_segments.rise(1);
  ++stats_.num_device_alloc;
  trace(TraceAction::kSegmentAlloc, block, block.size);
  return index;
}

bool CachingAllocator::should_split(const Request& request, const Block& block) const {
  if (request.split) return *request.split;
  const BlockPool& pool = pool_of(block);
  if (pool.owner != kNone && private_pools_[pool.owner].traits.no_split) return false;
  const uint64_t remaining = block.size - request.rounded;
  const bool expandable =
      profile_.expandable_split_by_option ? config_.expandable_segments : request.expandable;
  if (pool.kind == PoolKind::kSmall || expandable) return remaining >= kMinBlockSize;
  if (request.rounded >= config_.max_split_size) return false;
  switch (profile_.split_rule) {
    case SplitRule::kMutatedAtOneMiB:
      return remaining >= kSmallSize;
    case SplitRule::kMutatedNeverLarge:
      return false;
    case SplitRule::kReleased:
      break;
  }
  return remaining > kSmallSize;
}

// Gives the low `size` bytes to a new block; `rest` keeps the high part and is free. `held` is its
// entry, if it is still in the free set.
BlockIndex CachingAllocator::split_front(BlockIndex rest, uint64_t size, FreeSet::Position held) {
  const BlockIndex front = blocks_.create();
  Block& low = blocks_[front];
  Block& high = blocks_[rest];
  low.address = high.address;
  low.size = size;
  low.arena = high.arena;
  low.range = high.range;
  low.number = number_for_new(high.number);
  low.previous = high.previous;
  low.next = rest;
  if (low.previous != kNone) blocks_[low.previous].next = front;
  high.previous = front;
  high.address += size;
  high.size -= size;
  insert_free(rest, held);
  return front;
}

void CachingAllocator::count_split(const Block& taken, const Block* rest, bool was_split,
                                   PoolKind kind) {
  if (taken.range != kNone) return;
  if (rest != nullptr && !was_split) {
    stats_.inactive_split_bytes.rise(kind, rest->size);
    stats_.inactive_split.rise(kind, 1);
  } else if (was_split) {
    stats_.inactive_split_bytes.fall(kind, taken.size);
    if (rest == nullptr) stats_.inactive_split.fall(kind, 1);
  }
}

// `held`: the entry of `found` in its free set, if it is still there.
MallocResult CachingAllocator::finish_malloc(const Request& request, BlockIndex found,
                                             FreeSet::Position held) {
  const bool was_split = blocks_[found].is_split();
  const PoolKind kind = pools_[arenas_[request.arena].pool].kind;
  BlockIndex taken = found;
  if (should_split(request, blocks_[found])) {
    taken = split_front(found, request.rounded, held);
  } else if (held != FreeSet::Position{}) {
    arenas_[request.arena].free.erase_at(held);
  }
  Block& block = blocks_[taken];
  count_split(block, taken == found ? nullptr : &blocks_[found], was_split, kind);
  block.allocated = true;
  block.active = true;
  block.requested_size = request.requested;
  blocks_.link_address(taken);
  trace(TraceAction::kAlloc, block, request.requested);
  stats_.allocation.rise(kind, 1);
  stats_.allocated_bytes.rise(kind, block.size);
  stats_.active.rise(kind, 1);
  stats_.active_bytes.rise(kind, block.size);
  stats_.requested_bytes.rise(kind, request.requested);
  if (block.size >= config_.max_split_size) stats_.oversize_allocations.rise(1);
  return {MallocOutcome::kAllocated, taken, block.address, block.size};
}

void CachingAllocator::fill_oom_facts(const Request& request) {
  const DeviceMemoryInfo info = provider_.memory_info();
  last_oom_.requested = request.requested;
  last_oom_.rounded = request.rounded;
  last_oom_.segment = request.segment;
  last_oom_.device_free = info.free;
  last_oom_.device_total = info.total;
  last_oom_.allowed = allowed_;
  last_oom_.allocated = static_cast<uint64_t>(stats_.allocated_bytes.all.current);
  last_oom_.private_free = private_free_bytes();
  last_oom_.reserved = reserved() + outside_reserved_;
}

MallocResult CachingAllocator::out_of_memory(const Request& request) {
  fill_oom_facts(request);
  if (observer_ != nullptr) {
    const PoolKind kind = pools_[arenas_[request.arena].pool].kind;
    observer_->on_entry(
        {TraceAction::kOom, kind, last_oom_.device_free, request.rounded, request.stream});
  }
  ++stats_.num_ooms;
  return {MallocOutcome::kOutOfMemory, kNone, 0, 0};
}

MallocResult CachingAllocator::reject(const Request& request) {
  fill_oom_facts(request);
  ++stats_.num_oom_rejections;
  return {MallocOutcome::kRejected, kNone, 0, 0};
}

FreeOutcome CachingAllocator::free(uint64_t address) {
  if (address == 0) return FreeOutcome::kNull;
  const BlockIndex index = blocks_.take_allocated(address);
  return index == kNone ? FreeOutcome::kUnknown : go_on_free(index);
}

FreeOutcome CachingAllocator::free_block(BlockIndex index) {
  blocks_.unlink_address(index);
  return go_on_free(index);
}

void CachingAllocator::start_free(BlockIndex index) {
  Block& block = blocks_[index];
  const PoolKind kind = pool_of(block).kind;
  block.allocated = false;
  stats_.allocation.fall(kind, 1);
  stats_.allocated_bytes.fall(kind, block.size);
  trace(TraceAction::kFreeRequested, block, block.requested_size);
  if (block.size >= config_.max_split_size) stats_.oversize_allocations.fall(1);
}

FreeOutcome CachingAllocator::go_on_free(BlockIndex index) {
  start_free(index);
  if (!blocks_[index].has_uses) {
    finish_free(index);
    return FreeOutcome::kFreed;
  }
  if (scope_blocks()) {
    blocks_[index].deferred = true;
    deferred_.push_back(index);
  } else {
    insert_events(index);
  }
  return FreeOutcome::kPending;
}

// The block goes back to the free set, joined with its free neighbours.
void CachingAllocator::finish_free(BlockIndex index) {
  Block& block = blocks_[index];
  const PoolKind kind = pool_of(block).kind;
  trace(TraceAction::kFreeCompleted, block, block.requested_size);
  const uint64_t own_size = block.size;
  int64_t splits = 0;
  int64_t split_bytes = 0;
  const BlockIndex low = can_join(index, block.previous) ? block.previous : kNone;
  const BlockIndex high = can_join(index, block.next) ? block.next : kNone;
  FreeSet::Position held;
  if (low != kNone && high != kNone) erase_free(high);
  if (low != kNone || high != kNone) {
    held = arenas_[block.arena].free.find(entry_of(low != kNone ? low : high));
  }
  for (const BlockIndex neighbour : {low, high}) {
    if (neighbour == kNone) continue;
    --splits;
    split_bytes -= static_cast<int64_t>(absorb(index, neighbour));
  }
  block.active = false;
  insert_free(index, held);
  if (block.is_split()) {
    ++splits;
    split_bytes += static_cast<int64_t>(block.size);
  }
  if (block.range == kNone) {
    stats_.inactive_split.change(kind, splits);
    stats_.inactive_split_bytes.change(kind, split_bytes);
  }
  stats_.active.fall(kind, 1);
  stats_.active_bytes.fall(kind, own_size);
  stats_.requested_bytes.fall(kind, block.requested_size);
}

// Both are free (or both unmapped) and neighbours.
bool CachingAllocator::can_join(BlockIndex index, BlockIndex neighbour) const {
  if (neighbour == kNone) return false;
  const Block& other = blocks_[neighbour];
  return !other.allocated && other.event_count == 0 && !other.has_uses &&
         other.mapped == blocks_[index].mapped;
}

// Joins `from` into `into` if they can be; bytes gained, or 0.
uint64_t CachingAllocator::merge(BlockIndex into, BlockIndex from) {
  if (!can_join(into, from)) return 0;
  if (blocks_[from].mapped) {
    erase_free(from);
  } else {
    erase_unmapped(from);
  }
  return absorb(into, from);
}

// The neighbour `from`, which is in no set, becomes part of `into`; bytes gained.
uint64_t CachingAllocator::absorb(BlockIndex into, BlockIndex from) {
  Block& block = blocks_[into];
  const Block& gone = blocks_[from];
  if (block.previous == from) {
    block.address = gone.address;
    block.previous = gone.previous;
    if (block.previous != kNone) blocks_[block.previous].next = into;
  } else {
    block.next = gone.next;
    if (block.next != kNone) blocks_[block.next].previous = into;
  }
  block.size += gone.size;
  blocks_.destroy(from);
  return gone.size;
}

PoolKind CachingAllocator::pool_kind(BlockIndex block) const {
  return pool_of(blocks_[block]).kind;
}

uint64_t CachingAllocator::stream_of(BlockIndex block) const {
  return arenas_[blocks_[block].arena].stream;
}

}  // namespace fragscope::model
