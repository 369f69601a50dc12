#include "model/host_allocator.h"

#include <algorithm>
#include <bit>

namespace fragscope::model {
namespace {

constexpr uint64_t kReserveUnit = 4096;

void add(Stat& to, const Stat& from) {
  to.allocated += from.allocated;
  to.current += from.current;
  to.freed += from.freed;
  to.peak += from.peak;
}

}  // namespace

HostAllocator::HostAllocator(const AllocatorConfig& config, const VersionProfile& profile,
                             HostMemory& memory, StreamClock& clock)
    : config_(config), profile_(profile), memory_(memory), clock_(clock) {
  pools_.emplace_back();
}

uint64_t HostAllocator::round_size(uint64_t bytes) const {
  const bool exact = profile_.has_pinned_limits &&
                     (bytes > config_.pinned_max_round_threshold.value_or(UINT64_MAX) ||
                      bytes > config_.pinned_max_cached_size.value_or(UINT64_MAX));
  return exact ? bytes : std::bit_ceil(bytes);
}

uint32_t HostAllocator::bucket_of(uint64_t size) const {
  return static_cast<uint32_t>(std::bit_width(size - 1));
}

HostAllocator::BucketStat& HostAllocator::active_of(const Block& block) {
  Pool& pool = pools_[profile_.host_pool_buckets ? block.pool : 0];
  return pool.active[bucket_of(block.size)];
}

// --- requests -------------------------------------------------------------------------------

HostReply HostAllocator::allocate(uint64_t bytes, DeviceStream current) {
  if (bytes == 0) return {};
  const uint32_t pool = pool_for(current);
  const bool background = config_.pinned_use_background_threads;
  if (!background || pool != 0) process_events(pools_[pool]);
  const uint64_t size = round_size(bytes);
  const uint64_t wanted = profile_.host_search == HostSearch::kSmallestThatFits ? bytes : size;
  if (const auto block = take_free(pools_[pool], wanted)) return hand_out(*block);
  if (background) {
    if (profile_.host_background == HostBackground::kAsksPending) {
      process_events_of(pools_[pool], size);
      if (const auto block = take_free(pools_[pool], wanted)) return hand_out(*block);
    }
    start_background();
  }
  return new_block(pool, size);
}

HostReply HostAllocator::hand_out(uint32_t index) {
  blocks_[index].in_use = true;
  return {HostReply::Outcome::kAllocated, blocks_[index].address, blocks_[index].size};
}

std::optional<uint32_t> HostAllocator::take_free(Pool& pool, uint64_t size) {
  const bool any_bucket = profile_.host_search == HostSearch::kSmallestThatFits;
  for (auto bucket = pool.free.lower_bound(bucket_of(size)); bucket != pool.free.end(); ++bucket) {
    if (!any_bucket && bucket->first != bucket_of(size)) break;
    auto& list = bucket->second;
    auto at = list.rbegin();
    if (any_bucket) {  // sizes of a bucket are equal here: the lowest address
      at = std::min_element(list.rbegin(), list.rend(), [&](uint32_t a, uint32_t b) {
        return blocks_[a].address < blocks_[b].address;
      });
    } else if (profile_.host_search == HostSearch::kNewestThatFits) {
      at = std::find_if(list.rbegin(), list.rend(),
                        [&](uint32_t index) { return blocks_[index].size >= size; });
    }
    if (at == list.rend()) continue;
    const uint32_t index = *at;
    list.erase(std::next(at).base());
    BucketStat& active = active_of(blocks_[index]);
    active.requests.rise(1);
    const bool fits = profile_.host_search == HostSearch::kNewestThatFits;
    active.bytes.rise(fits ? blocks_[index].size : size);  // up to 2.14: what was asked for
    return index;
  }
  return std::nullopt;
}

// The reserve segment is made, or never, when the first block is.
void HostAllocator::decide_reserve() {
  if (reserve_decided_) return;
  reserve_decided_ = true;
  reserve_size_ = config_.pinned_reserve_segment_size;
  if (reserve_size_ == 0) return;
  reserve_ = memory_.allocate(reserve_size_, config_.pinned_use_cuda_host_register);
  ++held_.timed_allocs;
}

std::optional<uint64_t> HostAllocator::cut_reserve(uint64_t size) {
  decide_reserve();
  const uint64_t bytes = (size + kReserveUnit - 1) / kReserveUnit * kReserveUnit;
  if (!reserve_ || bytes > reserve_size_ - reserve_used_) return std::nullopt;
  const uint64_t address = *reserve_ + reserve_used_;
  reserve_used_ += bytes;
  return address;
}

HostReply HostAllocator::new_block(uint32_t pool, uint64_t size) {
  Block block;
  block.size = size;
  block.pool = pool;
  block.in_use = true;
  std::optional<uint64_t> address = cut_reserve(size);
  block.reserved = address.has_value();
  if (!address) {
    block.registered = config_.pinned_use_cuda_host_register;
    address = memory_.allocate(size, block.registered);
    if (!address) return {HostReply::Outcome::kFailed, {}, {}};
    ++held_.timed_allocs;
  }
  block.address = *address;
  uint32_t index = static_cast<uint32_t>(blocks_.size());
  if (unused_.empty()) {
    blocks_.emplace_back();
  } else {
    index = unused_.back();
    unused_.pop_back();
  }
  blocks_[index] = block;
  by_address_[block.address] = index;
  ++pools_[pool].blocks;
  count_new_block(block);
  return {HostReply::Outcome::kAllocated, block.address, block.size};
}

void HostAllocator::count_new_block(const Block& block) {
  held_.allocations.rise(1);
  held_.allocated_bytes.rise(block.size);
  BucketStat& active = active_of(block);
  active.requests.rise(1);
  active.bytes.rise(block.size);
}

bool HostAllocator::free(uint64_t address) {
  const auto at = by_address_.find(address);
  if (at == by_address_.end() || !blocks_[at->second].in_use) return false;
  const uint32_t index = at->second;
  Block& block = blocks_[index];
  block.in_use = false;
  if (block.streams.empty()) {
    if (profile_.host_free_counts) {
      cache_or_release(index, block.size);
    } else {
      pools_[block.pool].free[bucket_of(block.size)].push_back(index);
    }
    return true;
  }
  for (const DeviceStream& stream : block.streams) {
    pools_[block.pool].events.push_front({stream, clock_.submitted(stream), index});
    ++block.waiting;
  }
  block.streams.clear();
  return true;
}

bool HostAllocator::record_event(uint64_t address, DeviceStream stream) {
  const auto at = by_address_.find(address);
  if (at == by_address_.end() || !blocks_[at->second].in_use) return false;
  auto& streams = blocks_[at->second].streams;
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
  return true;
}

// --- events ---------------------------------------------------------------------------------

bool HostAllocator::is_done(const Event& event) {
  return clock_.completed(event.stream) >= event.position;
}

// True: that was the block's last event. `size`: the one that is looked for, if one is; 2.8 … 2.12
// count it instead of the block's, and -1 for none.
bool HostAllocator::finish_event(const Event& event, std::optional<uint64_t> size) {
  if (--blocks_[event.block].waiting != 0) return false;
  const bool by_block = profile_.host_event_counts_size;
  cache_or_release(event.block, by_block ? blocks_[event.block].size : size.value_or(UINT64_MAX));
  return true;
}

void HostAllocator::process_events(Pool& pool) {
  while (!pool.events.empty() && is_done(pool.events.back())) {
    const Event event = pool.events.back();
    pool.events.pop_back();
    finish_event(event, std::nullopt);
  }
}

// Up to 2.9: turns the queue until a block of this size has become free.
void HostAllocator::process_events_of(Pool& pool, uint64_t size) {
  const size_t limit = pool.events.size();
  for (size_t count = 0; !pool.events.empty(); ++count) {
    const Event event = pool.events.back();
    pool.events.pop_back();
    if (count > limit || blocks_[event.block].size != size || !is_done(event)) {
      pool.events.push_front(event);
      if (count > limit) return;
    } else if (finish_event(event, size)) {
      return;
    }
  }
}

void HostAllocator::start_background() {
  if (background_started_) return;
  background_started_ = true;
  run_background();
}

void HostAllocator::run_background() {
  if (background_started_) process_events(pools_[0]);
}

// --- release --------------------------------------------------------------------------------

void HostAllocator::cache_or_release(uint32_t index, uint64_t counted) {
  const Block& block = blocks_[index];
  BucketStat& active = active_of(block);
  active.requests.fall(1);
  active.bytes.fall(counted);
  const uint64_t limit = config_.pinned_max_cached_size.value_or(UINT64_MAX);
  if (profile_.has_pinned_limits && block.size > limit) {
    destroy(index);
  } else {
    pools_[block.pool].free[bucket_of(block.size)].push_back(index);
  }
}

void HostAllocator::destroy(uint32_t index) {
  const Block block = blocks_[index];
  by_address_.erase(block.address);
  unused_.push_back(index);
  --pools_[block.pool].blocks;
  if (!block.reserved) {
    memory_.release(block.address, block.registered);
    ++held_.timed_frees;
  }
  held_.allocations.fall(1);
  held_.allocated_bytes.fall(block.size);
}

void HostAllocator::release_free(Pool& pool) {
  for (auto& [bucket, list] : pool.free) {
    if (profile_.host_search == HostSearch::kSmallestThatFits) {
      std::sort(list.begin(), list.end(),
                [&](uint32_t a, uint32_t b) { return blocks_[a].address < blocks_[b].address; });
    }
    for (const uint32_t index : list) destroy(index);
    list.clear();
  }
}

bool HostAllocator::empty_cache() {
  process_events(pools_[0]);
  release_free(pools_[0]);
  for (const uint32_t index : freeable_.in_order()) {
    Pool& pool = pools_[index];
    if (!profile_.host_flush_ends_events && loses_block(pool)) return false;
    process_events(pool);
    release_free(pool);
    if (pool.blocks == 0) drop_pool(index);
  }
  return true;
}

bool HostAllocator::loses_block(Pool& pool) {
  while (!pool.events.empty() && is_done(pool.events.back())) {
    Block& block = blocks_[pool.events.back().block];
    pool.events.pop_back();
    if (--block.waiting == 0) return true;
  }
  return false;
}

// The pool's statistics outlive it (2.15).
void HostAllocator::drop_pool(uint32_t index) {
  Pool& pool = pools_[index];
  pool.alive = false;
  freeable_.erase(index);
  for (const auto& [bucket, active] : pool.active) {
    add(pools_[0].active[bucket].requests, active.requests);
    add(pools_[0].active[bucket].bytes, active.bytes);
  }
  pool.active.clear();
}

// --- private pools --------------------------------------------------------------------------

std::optional<uint32_t> HostAllocator::find_pool(PoolId id) const {
  const auto at = std::find_if(pools_.begin(), pools_.end(),
                               [id](const Pool& pool) { return pool.alive && pool.id == id; });
  if (at == pools_.end()) return std::nullopt;
  return static_cast<uint32_t>(at - pools_.begin());
}

uint32_t HostAllocator::pool_for(DeviceStream current) const {
  for (const Scope& scope : scopes_) {
    if (!scope.stream || *scope.stream == current) return find_pool(scope.id).value_or(0);
  }
  return 0;
}

bool HostAllocator::begin_pool(PoolId id, std::optional<DeviceStream> stream) {
  const auto known = find_pool(id);
  if (known && pools_[*known].users == 0) return false;
  if (known) {
    ++pools_[*known].users;  // even if the scope is refused
  } else {
    pools_.emplace_back();
    pools_.back().id = id;
    pools_.back().users = 1;
  }
  if (is_recording(id)) return false;
  scopes_.push_back({id, stream});
  return true;
}

bool HostAllocator::is_recording(PoolId id) const {
  return std::any_of(scopes_.begin(), scopes_.end(), [&](const Scope& s) { return s.id == id; });
}

bool HostAllocator::end_pool(PoolId id) {
  const auto at =
      std::find_if(scopes_.begin(), scopes_.end(), [&](const Scope& s) { return s.id == id; });
  if (at == scopes_.end()) return false;
  scopes_.erase(at);
  return true;
}

bool HostAllocator::release_pool(PoolId id) {
  const auto known = find_pool(id);
  if (!known || pools_[*known].users == 0) return false;
  if (--pools_[*known].users != 0) return true;
  freeable_.insert(id, *known);
  return true;
}

// --- statistics -----------------------------------------------------------------------------

// Peaks are kept by bucket and added up, as PyTorch does: an upper bound of the true peak.
HostStats HostAllocator::stats() const {
  HostStats stats = held_;
  stats.num_host_alloc = held_.allocations.allocated;
  stats.num_host_free = held_.allocations.freed;
  for (const Pool& pool : pools_) {
    for (const auto& [bucket, active] : pool.active) {
      add(stats.active_requests, active.requests);
      add(stats.active_bytes, active.bytes);
    }
  }
  return stats;
}

void HostAllocator::reset_peak_stats() {
  held_.allocations.reset_peak();
  held_.allocated_bytes.reset_peak();
  for (Pool& pool : pools_) {
    for (auto& [bucket, active] : pool.active) {
      active.requests.reset_peak();
      active.bytes.reset_peak();
    }
  }
}

void HostAllocator::reset_accumulated_stats() {
  held_.allocations.reset_accumulated();
  held_.allocated_bytes.reset_accumulated();
  held_.timed_allocs = held_.timed_frees = 0;
  for (Pool& pool : pools_) {
    for (auto& [bucket, active] : pool.active) {
      active.requests.reset_accumulated();
      active.bytes.reset_accumulated();
    }
  }
}

}  // namespace fragscope::model
