// Requests: search, split, new segments, free and merge. DeviceCachingAllocator::malloc and free.
#include "model/caching_allocator.h"

#include "model/rounding.h"

namespace fragscope::model {
CachingAllocator::CachingAllocator(const AllocatorConfig& config, const VersionProfile& profile,
                                   SegmentProvider& provider)
    : config_(config), profile_(profile), provider_(provider) {
  note_rules();
  make_pool(PoolKind::kLarge, kNone);
  make_pool(PoolKind::kSmall, kNone);
  if (config.max_split_size != kUnlimitedSplit) {
    stats_.max_split_size = static_cast<int64_t>(config.max_split_size);
  }
  if (config.per_process_memory_fraction) set_memory_fraction(*config.per_process_memory_fraction);
}

// Everything that depends on settings and release alone, so that requests need not ask.
void CachingAllocator::note_rules() {
  rounds_plainly_ = !has_divisions(config_);
  plain_ = rounds_plainly_ && config_.max_split_size == kUnlimitedSplit &&
           !config_.expandable_segments && !(config_.garbage_collection_threshold > 0);
  least_rest_[static_cast<size_t>(PoolKind::kSmall)] = kMinBlockSize;
  uint64_t& large = least_rest_[static_cast<size_t>(PoolKind::kLarge)];
  switch (profile_.split_rule) {
    case SplitRule::kMutatedAtOneMiB:
      large = kSmallSize;
      break;
    case SplitRule::kMutatedNeverLarge:
      large = UINT64_MAX;
      break;
    case SplitRule::kReleased:
      large = kSmallSize + 1;
  }
}

void CachingAllocator::tell(TraceAction action, const Block& block, uint64_t size) {
  const Arena& arena = arenas_[block.arena];
  observer_->on_entry({action, arena.kind, block.address, size, arena.stream});
}

uint64_t CachingAllocator::round_size(uint64_t requested) const {
  return rounds_plainly_ ? round_plainly(requested) : round_request(requested, config_, profile_);
}

uint64_t CachingAllocator::segment_size(uint64_t rounded) const {
  return segment_bytes(rounded, config_);
}

// The block is free. Its age counts from give_back() on: what comes here is new, or split.
void CachingAllocator::insert_free(BlockIndex index) {
  arenas_[blocks_[index].arena].free.insert(blocks_.slab(), index);
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

// A new block for the low `size` bytes of `found`, which keeps the rest and is free.
FRAGSCOPE_HOT BlockIndex CachingAllocator::take_front(Arena& arena, FreeSet::Found found,
                                                      uint64_t size) {
  const BlockIndex front = blocks_.create_raw();
  Block* const slab = blocks_.slab();
  Block& high = slab[found.block];
  const bool was_split = high.is_split();
  // Written in one piece: a flag set alone would hold up the next look at `arena` beside it.
  Block low;
  low.address = high.address;
  low.size = size;
  low.set_arena(arena.index);
  low.in_use = low.allocated = low.active = true;
  low.number = number_for_new(high.number);
  low.previous = high.previous;
  low.next = found.block;
  slab[front] = low;
  if (low.previous != kNone) slab[low.previous].next = front;
  high.previous = front;
  if (high.free) [[likely]] {
    arena.free.shrink(slab, found, high.address + size, high.size - size);
  } else {
    high.address += size;
    high.size -= size;
    arena.free.insert(slab, found.block);
  }
  if (high.expandable) [[unlikely]] {
    blocks_.set_range(front, blocks_.range(found.block));
    return front;
  }
  if (was_split) {
    running_.lessen_splits(arena.kind, size, 0);
  } else {
    running_.begin_split(arena.kind, high.size);
  }
  return front;
}

FRAGSCOPE_HOT void CachingAllocator::take_whole(Arena& arena, FreeSet::Found found) {
  Block& block = blocks_[found.block];
  if (block.free) arena.free.erase(blocks_.slab(), found);
  block.allocated = block.active = true;
  if (block.expandable || !block.is_split()) return;
  running_.lessen_splits(arena.kind, block.size, 1);
}

// The client gets `taken`, which is in no set.
FRAGSCOPE_HOT MallocResult CachingAllocator::hand_out(const Arena& arena, BlockIndex taken,
                                                      uint64_t requested) {
  Block& block = blocks_[taken];
  block.requested_size = requested;
  blocks_.link_address(taken);
  trace(TraceAction::kAlloc, block, requested);
  running_.begin_block(arena.kind, block.size, requested);
  if (block.size >= config_.max_split_size) [[unlikely]]
    stats_.oversize_allocations.rise(1);
  return {MallocOutcome::kAllocated, taken, block.address, block.size};
}

// The quick way: a request to a default pool under settings that have no say in the search, served
// from the free set. All others go by the rules.
MallocResult CachingAllocator::malloc(uint64_t requested, uint64_t stream) {
  if (requested == 0) [[unlikely]]
    return {};
  if (events_outstanding() && !scope_blocks()) [[unlikely]]
    process_events();
  if (!plain_ || !scopes_.empty()) [[unlikely]]
    return malloc_by_rules(requested, stream);
  const uint64_t rounded = round_plainly(requested);
  const PoolKind kind = rounded <= kSmallSize ? PoolKind::kSmall : PoolKind::kLarge;
  const RecentArena& recent = recent_[static_cast<size_t>(kind)];
  if (recent.stream != stream || recent.arena == kNone) [[unlikely]]
    return malloc_by_rules(requested, stream);
  Arena& arena = arenas_[recent.arena];
  const FreeSet::Found found = arena.free.search(blocks_.slab(), rounded);
  if (found.block == kNone) [[unlikely]]
    return malloc_by_rules(requested, stream);
  const Block& block = blocks_[found.block];
  if (block.expandable) [[unlikely]]
    return malloc_by_rules(requested, stream);
  if (block.size - rounded >= least_rest_[static_cast<size_t>(kind)]) {
    return hand_out(arena, take_front(arena, found, rounded), requested);
  }
  take_whole(arena, found);
  return hand_out(arena, found.block, requested);
}

MallocResult CachingAllocator::malloc_by_rules(uint64_t requested, uint64_t stream) {
  Request request = make_request(requested, stream);
  if (scopes_.empty()) {
    recent_[static_cast<size_t>(arenas_[request.arena].kind)] = {stream, request.arena};
  }
  const BlockIndex found = find_free(request);
  return found == kNone ? malloc_uncached(request) : finish_malloc(request, found);
}

// The free block that the request gets, still in its set; kNone if there is none.
BlockIndex CachingAllocator::find_free(const Request& request) {
  Arena& arena = arenas_[request.arena];
  if (counts_ages()) {
    counts_calls_ = true;
    ++pools_[arena.pool].calls;
  }
  BlockIndex found = arena.free.search(blocks_.slab(), request.rounded).block;
  if (found == kNone) return kNone;
  if (blocks_[found].expandable) {
    found = skip_expandable(arena.free, found, request);
    if (found == kNone) return kNone;
  }
  return refuses_oversize(request.rounded, blocks_[found].size) ? kNone : found;
}

// An expandable block counts as large as it can grow: prefer one without a huge unmapped tail. With
// the option off, expandable blocks are passed over.
BlockIndex CachingAllocator::skip_expandable(const FreeSet& set, BlockIndex at,
                                             const Request& request) const {
  if (!request.expandable) {
    do {
      at = set.after(blocks_.slab(), at);
    } while (at != kNone && blocks_[at].expandable);
    return at;
  }
  const auto reach = [&](const Block& block) {
    if (block.next == kNone || blocks_[block.next].mapped) return block.size;
    return block.size + blocks_[block.next].size;
  };
  for (BlockIndex next = set.after(blocks_.slab(), at);
       next != kNone && blocks_[at].expandable && reach(blocks_[next]) < reach(blocks_[at]);
       next = set.after(blocks_.slab(), next)) {
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
      return {MallocOutcome::kAssertion, kNone, {}, {}};
    case Attempt::kFailed:
      return out_of_memory(request);
  }
  return {};
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
  block.set_arena(request.arena);
  block.number = segment_number();
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
  if (expandable) return remaining >= kMinBlockSize;
  if (pool.kind == PoolKind::kLarge && request.rounded >= config_.max_split_size) return false;
  return remaining >= least_rest_[static_cast<size_t>(pool.kind)];
}

// `found` may be in its free set still.
MallocResult CachingAllocator::finish_malloc(const Request& request, BlockIndex found) {
  Arena& arena = arenas_[request.arena];
  const FreeSet::Found place = arena.free.found(blocks_.slab(), found);
  BlockIndex taken = found;
  if (should_split(request, blocks_[found])) {
    taken = take_front(arena, place, request.rounded);
  } else {
    take_whole(arena, place);
  }
  return hand_out(arena, taken, request.requested);
}

void CachingAllocator::fill_oom_facts(const Request& request) {
  const DeviceMemoryInfo info = provider_.memory_info();
  last_oom_.requested = request.requested;
  last_oom_.segment = request.segment;
  last_oom_.device_free = info.free;
  last_oom_.device_total = info.total;
  last_oom_.allowed = allowed_;
  last_oom_.allocated = allocated_bytes();
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

FRAGSCOPE_HOT void CachingAllocator::start_free(Block& block) {
  block.allocated = false;
  trace(TraceAction::kFreeRequested, block, block.requested_size);
  if (block.size >= config_.max_split_size) [[unlikely]]
    stats_.oversize_allocations.fall(1);
}

// The block goes back to the free set. A free neighbour, which is in it already and most often
// stays in its place there, takes the block in; it is the block from then on.
FRAGSCOPE_HOT void CachingAllocator::give_back(BlockIndex index, Arena& arena) {
  Block* const slab = blocks_.slab();
  Block& block = slab[index];
  trace(TraceAction::kFreeCompleted, block, block.requested_size);
  const auto own_size = static_cast<int64_t>(block.size);
  const BlockIndex low = if_free(block.previous);
  const BlockIndex high = if_free(block.next);
  const BlockIndex whole = low != kNone ? low : high != kNone ? high : index;
  int64_t splits = 0;
  if (whole == index) {
    block.active = false;
    arena.free.insert(slab, index);
  } else {
    uint64_t address = block.address;
    uint64_t size = block.size;
    BlockIndex next = block.next;
    if (high != kNone) {
      --splits;
      size += slab[high].size;
      next = slab[high].next;
    }
    if (low != kNone) {
      --splits;
      address = slab[low].address;
      size += slab[low].size;
      slab[low].next = next;
      if (next != kNone) slab[next].previous = low;
      if (high != kNone) {
        arena.free.erase(slab, high);
        blocks_.destroy(high);
      }
    } else {
      slab[high].previous = block.previous;
      if (block.previous != kNone) slab[block.previous].next = high;
    }
    slab[whole].requested_size = block.requested_size;
    arena.free.grow(slab, whole, address, size, block.number);
    blocks_.destroy(index);
  }
  if (counts_calls_) [[unlikely]]
    blocks_.set_gc_base(whole, pools_[arena.pool].calls);
  const Block& joined = slab[whole];
  if (joined.expandable) return;
  // What the neighbours had is in the block's size.
  const bool split = joined.is_split();
  running_.change_splits(arena.kind, own_size - (split ? 0 : static_cast<int64_t>(joined.size)),
                         splits + (split ? 1 : 0));
}

FRAGSCOPE_HOT FreeOutcome CachingAllocator::go_on_free(BlockIndex index) {
  Block& block = blocks_[index];
  if (block.has_uses) [[unlikely]]
    return wait_for_streams(index);
  Arena& arena = arenas_[block.arena];
  start_free(block);
  running_.end_block(arena.kind, block.size, block.requested_size);
  give_back(index, arena);
  return FreeOutcome::kFreed;
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

FreeOutcome CachingAllocator::wait_for_streams(BlockIndex index) {
  start_wait(index);
  if (scope_blocks()) {
    deferred_.push_back(index);
  } else {
    insert_events(index);
  }
  return FreeOutcome::kPending;
}

// The client has freed the block, other streams still use it.
void CachingAllocator::start_wait(BlockIndex index) {
  Block& block = blocks_[index];
  const Arena& arena = arenas_[block.arena];
  start_free(block);
  running_.begin_wait(arena.kind, block.size);
}

void CachingAllocator::finish_wait(BlockIndex index) {
  const Block& block = blocks_[index];
  Arena& arena = arenas_[block.arena];
  blocks_.end_wait(index);
  running_.end_wait(arena.kind, block.size, block.requested_size);
  give_back(index, arena);
}

// Both are free (or both unmapped) and neighbours.
bool CachingAllocator::can_join(BlockIndex index, BlockIndex neighbour) const {
  if (neighbour == kNone) return false;
  const Block& other = blocks_[neighbour];
  return !other.allocated && blocks_.events(neighbour) == 0 && !other.has_uses &&
         other.mapped == blocks_[index].mapped;
}

// Joins `from`, which then is no block any more, into `into` if they can be.
void CachingAllocator::merge(BlockIndex into, BlockIndex from) {
  if (!can_join(into, from)) return;
  if (blocks_[from].mapped) {
    erase_free(from);
  } else {
    erase_unmapped(from);
  }
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
}

PoolKind CachingAllocator::pool_kind(BlockIndex block) const {
  return pool_of(blocks_[block]).kind;
}

uint64_t CachingAllocator::stream_of(BlockIndex block) const {
  return arenas_[blocks_[block].arena].stream;
}

}  // namespace fragscope::model
