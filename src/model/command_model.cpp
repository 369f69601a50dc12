// The allocator model as the target of command lists.
#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "model/caching_allocator.h"
#include "model/command_runner.h"
#include "model/device_memory.h"
#include "model/oom_message.h"
#include "model/simulated_segments.h"

namespace fragscope::model {
namespace {

using Trace = std::vector<CommandTarget::Entry>;

class Recorder final : public TraceObserver {
 public:
  Recorder(int device, Trace& trace) : device_(device), trace_(trace) {}
  void on_entry(const TraceEntry& entry) override { trace_.push_back({device_, entry}); }

 private:
  int device_;
  Trace& trace_;
};

struct ModelDevice {
  ModelDevice(int index, uint64_t bytes, const AllocatorConfig& config,
              const VersionProfile& profile, Trace& trace)
      : capacity(bytes),
        memory(index, capacity),
        segments(memory, capacity, bytes),
        allocator(config, profile, segments),
        recorder(index, trace) {
    allocator.set_observer(&recorder);
  }

  LocalCapacity capacity;
  DeviceMemory memory;
  SimulatedSegments segments;
  CachingAllocator allocator;
  Recorder recorder;
};

class Model final : public ModelTarget {
 public:
  Model(const CommandList& list, const AllocatorConfig& config, const VersionProfile& profile,
        uint64_t device_memory)
      : profile_(profile), config_(config) {
    for (int i = 0; i < list.devices; ++i) {
      devices_.emplace_back(i, device_memory, config, profile, trace_);
    }
    host_ = make_model_host(config, profile,
                            [this](int device) -> CachingAllocator& { return on(device); });
  }

  AllocReply alloc(int device, uint64_t size, uint64_t stream) override {
    const MallocResult result = on(device).malloc(size, stream);
    AllocReply reply;
    switch (result.outcome) {
      case MallocOutcome::kAllocated:
        reply = {"ok", result.address, result.block_size, {}};
        break;
      case MallocOutcome::kNull:
        reply.outcome = "null";
        break;
      case MallocOutcome::kOutOfMemory:
        reply.outcome = "oom";
        break;
      case MallocOutcome::kRejected:
        reply.outcome = "rejected";
        break;
      case MallocOutcome::kAssertion:
        reply.outcome = "error";
    }
    if (reply.outcome == "oom") {
      reply.message = oom_message(on(device).last_oom(), profile_, config_, device);
    } else if (reply.outcome == "rejected") {
      reply.message = rejection_message(on(device).last_oom());
    } else if (reply.outcome == "error") {
      reply.message = on(device).last_error();
    }
    return reply;
  }

  std::string free(int device, uint64_t address) override {
    return on(device).free(address) == FreeOutcome::kUnknown ? "invalid device pointer" : "";
  }
  std::string record_stream(int device, uint64_t address, uint64_t stream) override {
    return on(device).record_stream(address, stream) ? "" : "invalid device pointer";
  }
  void work(int device, uint64_t stream) override { on(device).work(stream); }
  void complete(int device, uint64_t stream) override { on(device).complete(stream); }

  std::string empty_cache() override {
    for (ModelDevice& device : devices_) {
      if (device.allocator.empty_cache() == EmptyCacheOutcome::kAssertion) {
        return std::string(device.allocator.last_error());
      }
    }
    return {};
  }

  std::string settings(const std::string& text) override {
    const Status status = apply_config(text, profile_, ConfigOrigin::kRunTime, config_);
    for (ModelDevice& device : devices_) device.allocator.set_config(config_);
    host_->set_config(config_);
    return status ? "" : status.error().text;
  }

  std::string fraction(int device, double fraction) override {
    return on(device).set_memory_fraction(fraction) ? "" : fraction_error(fraction);
  }

  std::string begin_pool(int device, PoolId id, std::optional<uint64_t> stream) override {
    return on(device).begin_pool(id, stream) ? "" : std::string(on(device).last_error());
  }
  std::string end_pool(int device, PoolId id) override {
    return on(device).end_pool(id) ? "" : std::string(on(device).last_error());
  }
  std::string create_pool(int device, PoolId id, bool use_on_oom, bool no_split) override {
    if (use_on_oom && profile_.fallback == FallbackRule::kNone) {
      return "torch " + std::string(profile_.name) + " has no use_on_oom pools";
    }
    if (no_split && !profile_.has_no_split_pools) {
      return "torch " + std::string(profile_.name) + " has no no_split pools";
    }
    if (on(device).create_pool(id, {use_on_oom, no_split})) return {};
    return std::string(on(device).last_error());
  }
  std::string release_pool(int device, PoolId id) override {
    return on(device).release_pool(id) ? "" : std::string(on(device).last_error());
  }
  std::string begin_capture(int device) override {
    return on(device).begin_capture() ? "" : "a capture is under way";
  }
  std::string end_capture(int device) override {
    return on(device).end_capture() ? "" : "no capture is under way";
  }
  std::string checkpoint(int device, PoolId id, uint32_t checkpoint) override {
    checkpoints_[checkpoint] = on(device).checkpoint(id);
    return checkpoints_[checkpoint] ? "" : std::string(on(device).last_error());
  }
  std::string restore(int device, uint32_t checkpoint, CheckpointDelta& delta) override {
    if (!checkpoints_[checkpoint]) return "there is no such checkpoint";
    const bool done = on(device).restore_checkpoint(*checkpoints_[checkpoint], delta);
    return done ? "" : std::string(on(device).last_error());
  }
  void reset_peak_stats(int device) override { on(device).reset_peak_stats(); }
  void reset_accumulated_stats(int device) override { on(device).reset_accumulated_stats(); }

  Trace take_trace() override { return std::exchange(trace_, {}); }
  std::vector<SegmentSnapshot> segments(int device) override { return on(device).segments(); }
  DeviceStats stats(int device) override { return on(device).stats(); }
  HostTarget& host() override { return *host_; }
  bool undefined_in_library() override {
    return std::any_of(devices_.begin(), devices_.end(), [](const ModelDevice& device) {
      return device.allocator.undefined_in_library();
    });
  }
  const CachingAllocator& allocator(int device) const override {
    return devices_[static_cast<size_t>(device)].allocator;
  }

 private:
  CachingAllocator& on(int device) { return devices_[static_cast<size_t>(device)].allocator; }

  const VersionProfile& profile_;
  AllocatorConfig config_;
  Trace trace_;
  std::deque<ModelDevice> devices_;
  std::map<uint32_t, std::optional<PoolCheckpoint>> checkpoints_;
  std::unique_ptr<ModelHostTarget> host_;
};

}  // namespace

std::unique_ptr<ModelTarget> make_model_target(const CommandList& list,
                                               const AllocatorConfig& config,
                                               const VersionProfile& profile,
                                               uint64_t device_memory) {
  return std::make_unique<Model>(list, config, profile, device_memory);
}

}  // namespace fragscope::model
