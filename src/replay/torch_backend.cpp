// PyTorch's caching allocator as a backend.
//
// What it assumes: the client asks for the same blocks in the same order whatever the allocator
// does; a block that other streams used comes back when it did in the recording (the latest
// moment that the recording allows); a request that failed in the recording and succeeds here is
// given back at once, since what the client would have done with it is not known.
#include <algorithm>

#include "model/simulated_segments.h"
#include "replay/backend.h"
#include "replay/figures_of.h"
#include "replay/pool_use.h"

namespace fragscope::replay {
namespace {

// Size of a device that nothing tells: bounds nothing but an expandable segment's address space, of
// which a dozen must fit into the device's window.
constexpr uint64_t kAssumedTotal = 192ull << 30;

uint64_t total_of(const BackendDevice& device) {
  if (device.total_bytes) return *device.total_bytes;
  const bool unlimited = device.capacity == model::LocalCapacity::kUnlimited;
  return unlimited ? kAssumedTotal : device.capacity;
}

int window_of(int device) { return std::clamp(device, 0, model::kMaxDevices - 1); }

class TorchRun {
 public:
  TorchRun(const CallList& list, const BackendDevice& device, const model::AllocatorConfig& config,
           const model::VersionProfile& profile)
      : list_(list),
        capacity_(device.capacity),
        memory_(window_of(device.ordinal), capacity_),
        segments_(memory_, capacity_, total_of(device)),
        allocator_(config, profile, segments_),
        watch_(device.watch),
        slots_(list.slots) {
    allocator_.set_observer(watch_);
  }

  BackendRun run() {
    if (watch_ != nullptr) {
      apply_watched();
    } else {
      for (const Call& call : list_.calls) apply(call);
    }
    result_.figures = figures_of(allocator_.stats(), {});
    result_.figures.ooms = std::move(ooms_);
    if (!list_.sizes_known) result_.figures.requested.reset();
    result_.segments = allocator_.segments();
    return std::move(result_);
  }

 private:
  void apply_watched() {
    for (size_t index = 0; index < list_.calls.size(); ++index) {
      watch_->on_call(index);
      apply(list_.calls[index]);
    }
  }

  struct Slot {
    model::BlockIndex block = model::kNone;
    uint32_t generation = 0;  // of a block that is used by another stream
  };

  void apply(const Call& call) {
    Slot& slot = slots_.empty() ? none_ : slots_[call.slot];
    switch (call.kind) {
      case CallKind::alloc:
        slot.block = request(call).block;
        return;
      case CallKind::free:
        if (slot.block != model::kNone) allocator_.free_block(slot.block);
        return;
      case CallKind::free_later:
        if (slot.block == model::kNone) return;
        allocator_.free_pending(slot.block);
        slot.generation = allocator_.blocks().generation(slot.block);
        return;
      case CallKind::complete:
        if (slot.block != model::kNone) allocator_.complete_block(slot.block, slot.generation);
        return;
      case CallKind::empty_cache:
        allocator_.empty_cache();
        return;
      case CallKind::refused:
        refused(call);
        return;
    }
  }

  void refused(const Call& call) {
    const model::MallocResult result = request(call);
    if (!result.ok()) return;
    ++result_.ooms_avoided;
    keep_first_oom(call);
    allocator_.free_block(result.block);
  }

  model::MallocResult request(const Call& call) {
    const CallOrigin& origin = list_.origins[call.origin];
    const model::MallocResult result =
        pools_.malloc(allocator_, origin.pool, call.bytes, origin.stream);
    if (result.outcome == model::MallocOutcome::kOutOfMemory ||
        result.outcome == model::MallocOutcome::kRejected) {
      OomFact fact;
      if (!list_.seqs.empty()) fact.seq = list_.seqs[index_of(call)];
      fact.requested = allocator_.round_size(call.bytes);
      fact.device_free = segments_.memory_info().free;
      ooms_.push_back(fact);
      keep_first_oom(call);
    }
    return result;
  }

  void keep_first_oom(const Call& call) {
    if (result_.first_oom) return;
    result_.first_oom = index_of(call);
    result_.segments_at_oom = allocator_.segments();
  }

  size_t index_of(const Call& call) const {
    return static_cast<size_t>(&call - list_.calls.data());
  }

  const CallList& list_;
  model::LocalCapacity capacity_;
  model::DeviceMemory memory_;
  model::SimulatedSegments segments_;
  model::CachingAllocator allocator_;
  RunWatch* watch_;
  PoolUse pools_;
  std::vector<Slot> slots_;
  Slot none_;  // of lists without blocks
  std::vector<OomFact> ooms_;
  BackendRun result_;
};

class TorchBackend final : public Backend {
 public:
  TorchBackend(const model::VersionProfile& profile, const model::AllocatorConfig& config)
      : profile_(profile), config_(config) {}

  BackendRun run(const CallList& list, const BackendDevice& device) const override {
    return TorchRun(list, device, config_, profile_).run();
  }
  std::string name() const override { return "torch-" + std::string(profile_.name); }
  std::string alloc_conf() const override { return config_.text; }

 private:
  model::VersionProfile profile_;
  model::AllocatorConfig config_;
};

}  // namespace

std::unique_ptr<Backend> torch_backend(const model::VersionProfile& profile,
                                       const model::AllocatorConfig& config) {
  return std::make_unique<TorchBackend>(profile, config);
}

}  // namespace fragscope::replay
