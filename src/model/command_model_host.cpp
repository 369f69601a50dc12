// The model of pinned host memory as the target of command lists.
#include <utility>

#include "model/caching_allocator.h"
#include "model/command_runner.h"
#include "model/host_allocator.h"

namespace fragscope::model {
namespace {

using Devices = std::function<CachingAllocator&(int)>;

// The devices' allocators know the streams' work; the host allocator asks them.
class DeviceClock final : public StreamClock {
 public:
  explicit DeviceClock(Devices devices) : devices_(std::move(devices)) {}
  uint64_t submitted(DeviceStream stream) override {
    return devices_(stream.device).stream_progress(stream.stream).submitted;
  }
  uint64_t completed(DeviceStream stream) override {
    return devices_(stream.device).stream_progress(stream.stream).completed;
  }

 private:
  Devices devices_;
};

class ModelHost final : public ModelHostTarget {
 public:
  ModelHost(const AllocatorConfig& config, const VersionProfile& profile, Devices devices)
      : profile_(profile),
        clock_(std::move(devices)),
        allocator_(config, profile, memory_, clock_) {}

  AllocReply alloc(int device, uint64_t size, uint64_t stream) override {
    const HostReply reply = allocator_.allocate(size, {device, stream});
    if (reply.outcome == HostReply::Outcome::kNull) return {"null", {}, {}, {}};
    if (reply.outcome == HostReply::Outcome::kFailed) {
      return {"error", {}, {}, "CUDA error: out of memory"};
    }
    return {"ok", reply.address, reply.block_size, {}};
  }
  std::string free(uint64_t address) override {
    return allocator_.free(address) ? "" : "not a block in use";
  }
  std::string record(int device, uint64_t address, uint64_t stream) override {
    return allocator_.record_event(address, {device, stream}) ? "" : "not a block in use";
  }
  std::string empty_cache() override {
    return allocator_.empty_cache() ? "" : "Resource deadlock avoided";
  }
  std::string background() override {
    allocator_.run_background();
    return {};
  }

  std::string begin_pool(int device, PoolId id, std::optional<uint64_t> stream) override {
    if (!profile_.has_host_pools) return no_pools();
    std::optional<DeviceStream> on;
    if (stream) on = DeviceStream{device, *stream};
    if (allocator_.begin_pool(id, on)) return {};
    return allocator_.is_recording(id) ? "beginAllocateToPool: already recording to mempool_id"
                                       : "it->second->use_count > 0 INTERNAL ASSERT FAILED";
  }
  std::string end_pool(PoolId id) override {
    if (!profile_.has_host_pools) return no_pools();
    return allocator_.end_pool(id) ? "" : "endAllocatePool: not currently recording to mempool_id";
  }
  std::string release_pool(PoolId id) override {
    if (!profile_.has_host_pools) return no_pools();
    if (!allocator_.has_pool(id)) return "Argument passed to at() was not in the map.";
    return allocator_.release_pool(id) ? "" : "uc >= 0 INTERNAL ASSERT FAILED";
  }

  std::string reset_peak_stats() override {
    if (profile_.host_stats == HostStatsForm::kNone) return no_stats();
    allocator_.reset_peak_stats();
    return {};
  }
  std::string reset_accumulated_stats() override {
    if (profile_.host_stats == HostStatsForm::kNone) return no_stats();
    allocator_.reset_accumulated_stats();
    return {};
  }
  std::vector<HostCall> take_calls() override { return memory_.take_calls(); }
  HostStats stats() override { return allocator_.stats(); }
  void set_config(const AllocatorConfig& config) override { allocator_.set_config(config); }

 private:
  std::string no_pools() const {
    return "torch " + std::string(profile_.name) + " has no private pools of host memory";
  }
  std::string no_stats() const {
    return "torch " + std::string(profile_.name) + " has no statistics of host memory";
  }

  const VersionProfile& profile_;
  SimulatedHostMemory memory_;
  DeviceClock clock_;
  HostAllocator allocator_;
};

}  // namespace

std::unique_ptr<ModelHostTarget> make_model_host(const AllocatorConfig& config,
                                                 const VersionProfile& profile, Devices devices) {
  return std::make_unique<ModelHost>(config, profile, std::move(devices));
}

}  // namespace fragscope::model
