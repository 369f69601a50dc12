#include "enforce/served_allocator.h"

#include <algorithm>
#include <utility>

#include "model/oom_message.h"

namespace fragscope::enforce {

// The allocator's own trace, for the sink. Allocations are told when their block size is known.
class ServedAllocator::Trace final : public model::TraceObserver {
 public:
  explicit Trace(BlockSink& sink) : sink_(sink) {}

  void on_entry(const model::TraceEntry& entry) override {
    switch (entry.action) {
      case model::TraceAction::kFreeRequested:
        return sink_.on_free_requested(entry.stream, entry.address, entry.size);
      case model::TraceAction::kFreeCompleted:
        return sink_.on_free_completed(entry.stream, entry.address, entry.size);
      case model::TraceAction::kSegmentAlloc:
        return sink_.on_segment_alloc(entry.stream, entry.address, entry.size);
      case model::TraceAction::kSegmentFree:
        return sink_.on_segment_free(entry.stream, entry.address, entry.size);
      case model::TraceAction::kOom:
        oom_ = entry;  // another attempt may follow
        return;
      default:
        return;
    }
  }

  // The request has failed, or was served after all.
  void settle_oom(bool failed) {
    if (failed && oom_) sink_.on_oom(oom_->stream, oom_->size, oom_->address);
    oom_.reset();
  }

 private:
  BlockSink& sink_;
  std::optional<model::TraceEntry> oom_;
};

ServedAllocator::ServedAllocator(const model::AllocatorConfig& config,
                                 const model::VersionProfile& profile, DeviceApi& api,
                                 BlockSink* sink)
    : api_(api), sink_(sink), segments_(api), allocator_(config, profile, segments_) {
  if (sink == nullptr) return;
  trace_ = std::make_unique<Trace>(*sink);
  allocator_.set_observer(trace_.get());
}

ServedAllocator::~ServedAllocator() = default;

uint64_t ServedAllocator::allocated() const { return allocator_.allocated_bytes(); }

uint64_t ServedAllocator::reserved() const { return allocator_.reserved_bytes(); }

void ServedAllocator::count_placement() {
  allocator_.set_outside_reserved(placement_ != nullptr ? placement_->reserved_bytes() : 0);
}

void ServedAllocator::release_placement_cache() {
  wait_for_placed();
  placement_->release_cached();
  count_placement();
}

void ServedAllocator::tell_alloc(const BlockAlloc& block) {
  if (sink_ == nullptr) return;
  BlockAlloc told = block;
  told.allocated = allocated();
  told.reserved = reserved();
  sink_->on_alloc(told);
}

Served ServedAllocator::allocate(uint64_t bytes, uint64_t stream) {
  const Locked lock(mutex_);
  if (bytes == 0) return {};
  if (bytes > kMaxRequest) return {kOutOfMemory, 0, 0};
  if (allocator_.events_outstanding() || !waiting_.empty() || !held_.empty()) poll_events();
  if (placement_ != nullptr && scopes_.empty()) {
    if (const std::optional<Served> placed = offer(bytes, stream)) return *placed;
  }
  return serve_cached(bytes, stream);
}

std::optional<Served> ServedAllocator::offer(uint64_t bytes, uint64_t stream) {
  const std::optional<PlacedBlock> block = placement_->offer(bytes, stream);
  count_placement();
  if (!block) return std::nullopt;
  placed_[block->address] = {*block, bytes, stream, {}};
  allocator_.begin_outside_block(block->size, bytes);
  ++placed_count_;
  tell_alloc({stream, block->address, block->size, bytes, 0, 0});
  return Served{kSuccess, block->address, block->size};
}

model::MallocResult ServedAllocator::request(uint64_t bytes, uint64_t stream) {
  constexpr uint64_t kNoStream = UINT64_MAX;
  for (const Scope& scope : scopes_) {
    allocator_.aim_scope(scope.pool, scope.filter(stream) ? stream : kNoStream);
  }
  return allocator_.malloc(bytes, stream);
}

model::MallocResult ServedAllocator::request_again(const model::MallocResult& failed,
                                                   uint64_t bytes, uint64_t stream) {
  if (failed.outcome == model::MallocOutcome::kOutOfMemory) allocator_.retract_oom();
  return request(bytes, stream);
}

Served ServedAllocator::serve_cached(uint64_t bytes, uint64_t stream) {
  const uint64_t failures = segments_.failures();
  segments_.forget_last_result();
  model::MallocResult block = request(bytes, stream);
  if (!block.ok() && finish_parked()) block = request_again(block, bytes, stream);
  if (!block.ok() && placement_ != nullptr) {
    release_placement_cache();
    block = request_again(block, bytes, stream);
  }
  if (trace_ != nullptr) trace_->settle_oom(!block.ok());
  if (!block.ok()) {
    const CudaResult result = segments_.last_result();
    return {result != kSuccess ? result : kOutOfMemory, segments_.last_address(), 0};
  }
  // A first attempt that failed must not be seen by the program, which got its memory.
  if (segments_.failures() != failures) api_.forget_last_error();
  tell_alloc({stream, block.address, block.block_size, bytes, 0, 0});
  return {kSuccess, block.address, block.block_size};
}

// Blocks whose events are done: the allocator notices its own with the next request.
void ServedAllocator::poll_events() {
  segments_.events().poll(
      [this](uint64_t stream, uint64_t count) { allocator_.complete_until(stream, count); });
  std::erase_if(held_, [this](const Held& held) {
    if (segments_.events().completed(held.stream) < held.number) return false;
    static_cast<void>(allocator_.complete_block(held.block, held.generation));
    return true;
  });
  complete_waiting();
}

void ServedAllocator::complete_waiting() {
  std::erase_if(waiting_, [this](const Waiting& waiting) {
    for (const auto& [stream, number] : waiting.events) {
      if (segments_.events().completed(stream) < number) return false;
    }
    complete_placed(waiting.placed);
    return true;
  });
}

void ServedAllocator::wait_for_placed() {
  if (waiting_.empty()) return;
  segments_.events().wait();
  poll_events();
  complete_waiting();
}

void ServedAllocator::complete_placed(const Placed& placed) {
  if (sink_ != nullptr) {
    sink_->on_free_completed(placed.stream, placed.block.address, placed.requested);
  }
  allocator_.complete_outside_block(placed.block.size, placed.requested);
  placement_->release(placed.block.address);
}

Freed ServedAllocator::release_placed(Placed placed, const std::vector<uint64_t>& streams) {
  allocator_.free_outside_block(placed.block.size);
  if (sink_ != nullptr) {
    sink_->on_free_requested(placed.stream, placed.block.address, placed.requested);
  }
  if (streams.empty()) {
    complete_placed(placed);
    return Freed::kFreed;
  }
  Waiting waiting{std::move(placed), {}};
  for (const uint64_t stream : streams) {
    waiting.events.emplace_back(stream, segments_.events().record(stream));
  }
  waiting_.push_back(std::move(waiting));
  return Freed::kPending;
}

Freed ServedAllocator::finish_release(uint64_t address) {
  const auto found = placed_.find(address);
  if (found != placed_.end()) {
    Placed placed = std::move(found->second);
    placed_.erase(found);
    const std::vector<uint64_t> streams = placed.uses;
    return release_placed(std::move(placed), streams);
  }
  const bool pending = allocator_.free(address) == model::FreeOutcome::kPending;
  return pending ? Freed::kPending : Freed::kFreed;
}

bool ServedAllocator::is_leaving(uint64_t address) const {
  return !leaving_.empty() &&
         std::find(leaving_.begin(), leaving_.end(), address) != leaving_.end();
}

Ownership ServedAllocator::find(uint64_t address) const {
  if (is_leaving(address)) return Ownership::kInside;
  if (allocator_.find(address) != model::kNone) return Ownership::kBlock;
  if (!placed_.empty() && placed_.count(address) != 0) return Ownership::kBlock;
  if (segments_.contains(address)) return Ownership::kInside;
  const bool inside = placement_ != nullptr && placement_->contains(address);
  return inside ? Ownership::kInside : Ownership::kForeign;
}

Freed ServedAllocator::release(uint64_t address) {
  const Locked lock(mutex_);
  const Ownership owner = find(address);
  if (owner == Ownership::kForeign) return Freed::kForeign;
  if (owner == Ownership::kInside) return Freed::kInside;
  return finish_release(address);
}

Freed ServedAllocator::release_after_device(uint64_t address, CudaResult& result) {
  std::vector<uint64_t> done;
  {
    const Locked lock(mutex_);
    const Ownership owner = find(address);
    if (owner == Ownership::kForeign) return Freed::kForeign;
    if (owner == Ownership::kInside) return Freed::kInside;
    leaving_.push_back(address);  // a second free of it meanwhile is an error, as in CUDA
    if (!api_.may_synchronize()) {
      parked_.push_back(address);
      result = kSuccess;
      return Freed::kPending;
    }
    done = std::exchange(parked_, {});
  }
  result = api_.synchronize();
  const Locked lock(mutex_);
  if (result != kSuccess) {
    parked_.insert(parked_.end(), done.begin(), done.end());
    std::erase(leaving_, address);
    return Freed::kFailed;
  }
  done.push_back(address);
  for (const uint64_t block : done) {
    std::erase(leaving_, block);
    static_cast<void>(finish_release(block));
  }
  return Freed::kFreed;
}

// Before a request fails, and at empty_cache(): under the lock. False: there was nothing to free.
bool ServedAllocator::finish_parked() {
  if (parked_.empty() || !api_.may_synchronize() || api_.synchronize() != kSuccess) return false;
  for (const uint64_t block : std::exchange(parked_, {})) {
    std::erase(leaving_, block);
    static_cast<void>(finish_release(block));
  }
  return true;
}

Freed ServedAllocator::release_after_stream(uint64_t address, uint64_t stream) {
  const Locked lock(mutex_);
  const Ownership owner = find(address);
  if (owner == Ownership::kForeign) return Freed::kForeign;
  if (owner == Ownership::kInside) return Freed::kInside;
  const auto found = placed_.find(address);
  if (found != placed_.end()) {
    Placed placed = std::move(found->second);
    placed_.erase(found);
    std::vector<uint64_t> streams = placed.uses;
    streams.push_back(stream);
    return release_placed(std::move(placed), streams);
  }
  Held held;
  held.block = allocator_.find(address);
  held.stream = stream;
  held.number = segments_.events().record(stream);
  static_cast<void>(allocator_.free_pending(held.block));
  held.generation = allocator_.blocks().generation(held.block);
  held_.push_back(held);
  return Freed::kPending;
}

bool ServedAllocator::record_stream(uint64_t address, uint64_t stream) {
  const Locked lock(mutex_);
  const auto found = placed_.find(address);
  if (found == placed_.end()) return allocator_.record_stream(address, stream);
  std::vector<uint64_t>& uses = found->second.uses;
  if (stream == found->second.stream) return true;
  if (std::find(uses.begin(), uses.end(), stream) == uses.end()) uses.push_back(stream);
  return true;
}

void ServedAllocator::empty_cache() {
  const Locked lock(mutex_);
  static_cast<void>(finish_parked());
  static_cast<void>(allocator_.empty_cache());
  if (placement_ == nullptr) return;
  release_placement_cache();
}

bool ServedAllocator::give_back_idle() {
  const Locked lock(mutex_);
  if (!scopes_.empty()) return false;
  const uint64_t before = reserved();
  static_cast<void>(allocator_.empty_cache());
  if (placement_ != nullptr) release_placement_cache();
  return reserved() < before;
}

// Every scope counts as a capture: events are recorded and asked only outside of them, which is
// right for both.
bool ServedAllocator::begin_pool(model::PoolId id, std::function<bool(uint64_t)> filter) {
  const Locked lock(mutex_);
  if (!allocator_.begin_pool(id)) return false;
  scopes_.push_back({id, std::move(filter)});
  static_cast<void>(allocator_.begin_capture());
  api_.note_captures(true);
  return true;
}

bool ServedAllocator::end_pool(model::PoolId id) {
  const Locked lock(mutex_);
  if (!allocator_.end_pool(id)) return false;
  const auto same = [id](const Scope& scope) { return scope.pool == id; };
  scopes_.erase(std::next(std::find_if(scopes_.rbegin(), scopes_.rend(), same)).base());
  if (!scopes_.empty()) return true;
  static_cast<void>(allocator_.end_capture());
  api_.note_captures(false);
  return true;
}

bool ServedAllocator::release_pool(model::PoolId id) {
  const Locked lock(mutex_);
  return allocator_.release_pool(id);
}

void ServedAllocator::set_config(const model::AllocatorConfig& config) {
  const Locked lock(mutex_);
  allocator_.set_config(config);
}

model::AllocatorConfig ServedAllocator::config() {
  const Locked lock(mutex_);
  return allocator_.config();
}

bool ServedAllocator::set_memory_fraction(double fraction) {
  const Locked lock(mutex_);
  return allocator_.set_memory_fraction(fraction);
}

bool ServedAllocator::set_placement(std::unique_ptr<Placement> placement) {
  const Locked lock(mutex_);
  if (placement_ != nullptr) {
    wait_for_placed();
    if (!placed_.empty()) return false;
  }
  placement_ = std::move(placement);
  count_placement();
  return true;
}

Ownership ServedAllocator::ownership(uint64_t address) {
  const Locked lock(mutex_);
  return find(address);
}

std::optional<std::pair<uint64_t, uint64_t>> ServedAllocator::base_of(uint64_t address) {
  const Locked lock(mutex_);
  return segments_.segment_of(address);
}

ServedStats ServedAllocator::stats() {
  const Locked lock(mutex_);
  const model::DeviceStats& all = allocator_.stats();
  const auto current = [](const model::PoolStat& stat) {
    return static_cast<uint64_t>(stat.all.current);
  };
  ServedStats stats;
  stats.allocated = allocated();
  stats.peak_allocated = static_cast<uint64_t>(all.allocated_bytes.all.peak);
  stats.reserved = reserved();
  stats.peak_reserved = static_cast<uint64_t>(all.reserved_bytes.all.peak);
  stats.active = current(all.active_bytes);
  stats.inactive_split = current(all.inactive_split_bytes);
  stats.requested = current(all.requested_bytes);
  stats.allocations = static_cast<uint64_t>(all.allocation.all.allocated);
  stats.retries = static_cast<uint64_t>(all.num_alloc_retries);
  stats.ooms = static_cast<uint64_t>(all.num_ooms);
  stats.segments = current(all.segment);
  stats.placed = placed_count_;
  return stats;
}

void ServedAllocator::visit_stats(const std::function<void(const std::string&, int64_t)>& visit) {
  mutex_.lock();
  const model::DeviceStats stats = allocator_.stats();
  mutex_.unlock();
  model::visit_stats(stats, allocator_.profile(), visit);
}

void ServedAllocator::reset_peak_stats() {
  const Locked lock(mutex_);
  allocator_.reset_peak_stats();
}

void ServedAllocator::reset_accumulated_stats() {
  const Locked lock(mutex_);
  allocator_.reset_accumulated_stats();
}

std::string ServedAllocator::oom_text(int device) {
  const Locked lock(mutex_);
  return model::oom_message(allocator_.last_oom(), allocator_.profile(), allocator_.config(),
                            device);
}

}  // namespace fragscope::enforce
