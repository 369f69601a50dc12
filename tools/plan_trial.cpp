#include "tools/plan_trial.h"

#include <vector>

#include "enforce/plan_placement.h"
#include "enforce/served_allocator.h"
#include "model/device_memory.h"
#include "model/version_profile.h"

namespace fragscope::tools {
namespace {

// Unlimited memory; all work is done at once.
class CountingDevice final : public enforce::DeviceApi {
 public:
  CountingDevice() : capacity_(model::LocalCapacity::kUnlimited), memory_(0, capacity_) {}

  enforce::CudaResult malloc(uint64_t bytes, uint64_t& address) override {
    const auto placed = memory_.allocate(bytes);
    if (!placed) return enforce::kOutOfMemory;
    address = *placed;
    return enforce::kSuccess;
  }
  enforce::CudaResult free(uint64_t address) override {
    return memory_.release(address) ? enforce::kSuccess : enforce::kInvalidValue;
  }
  enforce::CudaResult synchronize() override { return enforce::kSuccess; }
  bool memory_info(uint64_t& free_bytes, uint64_t& total) override {
    free_bytes = total = UINT64_MAX / 2;
    return true;
  }
  void forget_last_error() override {}
  enforce::Event record_event(uint64_t) override { return this; }
  enforce::EventState query_event(enforce::Event) override { return enforce::EventState::kDone; }
  enforce::CudaResult wait_event(enforce::Event) override { return enforce::kSuccess; }
  void drop_event(enforce::Event) override {}

 private:
  model::LocalCapacity capacity_;
  model::DeviceMemory memory_;
};

}  // namespace

PlanTrial try_plan(const enforce::Plan& plan, const replay::CallList& list) {
  CountingDevice device;
  enforce::ServedAllocator allocator(model::AllocatorConfig{}, model::version_profiles().back(),
                                     device, nullptr);
  static_cast<void>(
      allocator.set_placement(std::make_unique<enforce::PlanPlacement>(plan, device, nullptr)));
  std::vector<uint64_t> slots(list.slots);
  PlanTrial trial;
  for (const replay::Call& call : list.calls) {
    switch (call.kind) {
      case replay::CallKind::alloc:
        ++trial.requests;
        slots[call.slot] = allocator.allocate(call.bytes, list.origins[call.origin].stream).address;
        break;
      case replay::CallKind::free:
      case replay::CallKind::complete:
        if (slots[call.slot] != 0) static_cast<void>(allocator.release(slots[call.slot]));
        slots[call.slot] = 0;
        break;
      case replay::CallKind::empty_cache:
        allocator.empty_cache();
        break;
      default:
        break;
    }
  }
  const enforce::ServedStats stats = allocator.stats();
  trial.peak_reserved = stats.peak_reserved;
  trial.peak_allocated = stats.peak_allocated;
  trial.placed = stats.placed;
  return trial;
}

}  // namespace fragscope::tools
