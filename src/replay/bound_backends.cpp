// What a caching allocator is held against: no caching at all, and the best that could be done.
#include <algorithm>

#include "base/bytes.h"
#include "replay/backend.h"
#include "replay/offline_plan.h"

namespace fragscope::replay {
namespace {

int window_of(int device) { return std::clamp(device, 0, model::kMaxDevices - 1); }

// A level that is raised and lowered, with its peak.
void set_level(Level& level, uint64_t value) {
  level.final = value;
  level.raise_peak(value);
}

// cudaFree waits for the device: a block that another stream uses is given back at its free.
class CudaRun {
 public:
  CudaRun(const CallList& list, const BackendDevice& device)
      : list_(list),
        capacity_(device.capacity),
        memory_(window_of(device.ordinal), capacity_),
        slots_(list.slots) {
    result_.figures.requested.emplace();
  }

  BackendRun run() {
    for (size_t i = 0; i < list_.calls.size(); ++i) apply(list_.calls[i], i);
    if (!list_.sizes_known) result_.figures.requested.reset();
    return std::move(result_);
  }

 private:
  struct Slot {
    std::optional<uint64_t> address;
    uint64_t bytes = 0;
  };

  void apply(const Call& call, size_t index) {
    switch (call.kind) {
      case CallKind::alloc:
        slots_[call.slot] = {allocate(call.bytes, index), call.bytes};
        return;
      case CallKind::refused:
        if (const auto address = allocate(call.bytes, index)) {
          ++result_.ooms_avoided;
          if (!result_.first_oom) result_.first_oom = index;
          release(*address, call.bytes);
        }
        return;
      case CallKind::free:
      case CallKind::free_later:
        if (Slot& slot = slots_[call.slot]; slot.address) {
          release(*slot.address, slot.bytes);
          slot.address.reset();
        }
        return;
      case CallKind::complete:
      case CallKind::empty_cache:
        return;
    }
  }

  std::optional<uint64_t> allocate(uint64_t bytes, size_t index) {
    const auto address = memory_.allocate(bytes);
    if (!address) {
      OomFact fact;
      if (!list_.seqs.empty()) fact.seq = list_.seqs[index];
      fact.requested = bytes;
      fact.device_free = capacity_.capacity() - capacity_.used();
      result_.figures.ooms.push_back(fact);
      if (!result_.first_oom) result_.first_oom = index;
      return std::nullopt;
    }
    ++result_.figures.device_mallocs;
    live_bytes_ += bytes;
    ++live_;
    count();
    return address;
  }

  void release(uint64_t address, uint64_t bytes) {
    memory_.release(address);
    ++result_.figures.device_frees;
    live_bytes_ -= bytes;
    --live_;
    count();
  }

  void count() {
    ReplayFigures& figures = result_.figures;
    set_level(figures.reserved, memory_.charged_bytes());
    set_level(figures.segments, live_);
    for (Level* level : {&figures.allocated, &figures.active, &*figures.requested}) {
      set_level(*level, live_bytes_);
    }
  }

  const CallList& list_;
  model::LocalCapacity capacity_;
  model::DeviceMemory memory_;
  std::vector<Slot> slots_;
  uint64_t live_bytes_ = 0;
  uint64_t live_ = 0;
  BackendRun result_;
};

class CudaBackend final : public Backend {
 public:
  BackendRun run(const CallList& list, const BackendDevice& device) const override {
    return CudaRun(list, device).run();
  }
  std::string name() const override { return "cuda"; }
  std::string alloc_conf() const override { return ""; }
};

// Lifetimes in numbers of allocations; a request that failed in the recording lives for itself.
std::vector<PlannedBlock> lifetimes(const CallList& list) {
  std::vector<PlannedBlock> blocks;
  std::vector<size_t> owner(list.slots);
  const auto now = [&] { return static_cast<uint32_t>(blocks.size()); };
  for (const Call& call : list.calls) {
    switch (call.kind) {
      case CallKind::alloc:
        owner[call.slot] = blocks.size();
        blocks.push_back({round_up(call.bytes, model::kDeviceAlignment), now(), UINT32_MAX});
        break;
      case CallKind::refused:
        blocks.push_back({round_up(call.bytes, model::kDeviceAlignment), now(), now() + 1});
        break;
      case CallKind::free:
      case CallKind::complete:
        blocks[owner[call.slot]].death = now();
        break;
      case CallKind::free_later:
      case CallKind::empty_cache:
        break;
    }
  }
  for (PlannedBlock& block : blocks) block.death = std::min(block.death, now());
  return blocks;
}

class PlanBackend final : public Backend {
 public:
  BackendRun run(const CallList& list, const BackendDevice& device) const override {
    const OfflinePlan plan = plan_offline(lifetimes(list));
    BackendRun result;
    result.live_peak = plan.live_peak;
    result.fits = plan.height <= device.capacity;
    ReplayFigures& figures = result.figures;
    figures.reserved = {plan.height, plan.height};
    figures.segments = {1, 1};
    figures.device_mallocs = 1;
    figures.allocated = figures.active = {plan.live_peak, live_at_end(list)};
    return result;
  }
  std::string name() const override { return "plan"; }
  std::string alloc_conf() const override { return ""; }

 private:
  static uint64_t live_at_end(const CallList& list) {
    std::vector<uint64_t> bytes(list.slots);
    for (const Call& call : list.calls) {
      if (call.kind == CallKind::alloc) {
        bytes[call.slot] = round_up(call.bytes, model::kDeviceAlignment);
      } else if (call.kind == CallKind::free || call.kind == CallKind::complete) {
        bytes[call.slot] = 0;
      }
    }
    uint64_t sum = 0;
    for (const uint64_t live : bytes) sum += live;
    return sum;
  }
};

}  // namespace

std::unique_ptr<Backend> cuda_backend() { return std::make_unique<CudaBackend>(); }
std::unique_ptr<Backend> plan_backend() { return std::make_unique<PlanBackend>(); }

Result<std::unique_ptr<Backend>> parse_backend(std::string_view name, const std::string& alloc_conf,
                                               const std::string& recorded_version) {
  if (name == "cuda" || name == "plan") {
    if (!alloc_conf.empty()) {
      return Error{ErrorCode::kInvalidArgument,
                   std::string(name) + " has no settings; found " + alloc_conf};
    }
    return name == "cuda" ? cuda_backend() : plan_backend();
  }
  constexpr std::string_view kTorch = "torch-";
  if (name != "torch" && !name.starts_with(kTorch)) {
    return Error{ErrorCode::kInvalidArgument, "no allocator is called '" + std::string(name) +
                                                  "'; known: torch, torch-2.N, cuda, plan"};
  }
  const std::string version =
      name == "torch" ? recorded_version : std::string(name.substr(kTorch.size()));
  const auto profile = model::asked_version_profile(version);
  if (!profile && name != "torch") return profile.error();
  const model::VersionProfile& rules =
      profile ? *profile.value().profile : *model::find_version_profile(version).profile;
  auto config = model::parse_config(alloc_conf, rules);
  if (!config) return config.error();
  return torch_backend(rules, *config);
}

}  // namespace fragscope::replay
