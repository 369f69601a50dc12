#include "replay/recorded_process.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "replay/verifier.h"

namespace fragscope::replay {
namespace {

uint64_t saturating_minus(uint64_t left, uint64_t right) { return left > right ? left - right : 0; }

void set_capacity(RecordedDevice& device, const DeviceFacts& facts, std::optional<uint64_t> at_oom,
                  uint64_t outside, const std::optional<uint64_t>& device_memory) {
  uint64_t others = outside + facts.context_bytes.value_or(0);
  if (at_oom && facts.total_bytes) others = saturating_minus(*facts.total_bytes, *at_oom);
  device.total_bytes = device_memory ? device_memory : facts.total_bytes;
  if (at_oom && !device_memory) {
    device.capacity = at_oom;
  } else if (device.total_bytes) {
    device.capacity = saturating_minus(*device.total_bytes, others);
  }
}

// Verifies, and collects the calls beside.
class BlockPlanePass {
 public:
  BlockPlanePass(const ProcessFacts& facts, const Rules& rules, const ReadSettings& settings)
      : plane_(facts.block_source), facts_(facts), rules_(rules), settings_(settings) {}

  void run(EventStream& events) {
    const auto take = [&](const BlockOp& op) {
      Device* device = device_of(op);
      if (device == nullptr) return;
      device->verifier.feed(op);
      if (device->calls) device->calls->feed(op);
    };
    const auto freed = [&](const BlockOp& op) {
      Device* device = device_of(op);
      device->verifier.feed_freed(op);
      if (device->calls) device->calls->feed_freed(op);
    };
    events.rewind();
    for (auto batch = events.next_batch(); !batch.empty(); batch = events.next_batch()) {
      plane_.feed(batch, take, freed);
    }
  }

  const BlockPlane& plane() const { return plane_; }

  std::vector<RecordedDevice> finish() {
    std::vector<RecordedDevice> result;
    for (auto& [index, device] : devices_) {
      device->verifier.finish();
      RecordedDevice& recorded = result.emplace_back();
      recorded.device = index;
      recorded.verify = device->verifier.counts();
      recorded.figures = device->verifier.figures();
      recorded.segments = device->verifier.segments();
      recorded.at_oom = device->verifier.at_oom();
      if (device->calls) recorded.calls = device->calls->finish();
      set_capacity(recorded, facts_.device(index), device->verifier.available_at_oom(),
                   plane_.outside_peak(index), settings_.device_memory);
    }
    return result;
  }

 private:
  struct Device {
    explicit Device(const VerifySettings& settings) : verifier(settings) {}
    DeviceVerifier verifier;
    std::unique_ptr<CallListBuilder> calls;
  };

  // nullptr: maybe not an allocator's op.
  Device* device_of(const BlockOp& op) {
    if (last_ != nullptr && op.device == last_index_) return last_;
    const auto found = devices_.find(op.device);
    last_index_ = op.device;
    last_ = found != devices_.end() ? found->second.get() : nullptr;
    if (last_ != nullptr || op.kind == BlockOpKind::segment_refused) return last_;
    VerifySettings settings;
    settings.config = rules_.config;
    settings.profile = &rules_.profile;
    settings.total_bytes = facts_.device(op.device).total_bytes;
    auto fresh = std::make_unique<Device>(settings);
    if (settings_.with_calls) fresh->calls = std::make_unique<CallListBuilder>(settings_.with_seqs);
    last_ = devices_.emplace(op.device, std::move(fresh)).first->second.get();
    return last_;
  }

  BlockPlane plane_;
  const ProcessFacts& facts_;
  const Rules& rules_;
  const ReadSettings& settings_;
  std::map<int32_t, std::unique_ptr<Device>> devices_;
  Device* last_ = nullptr;  // of the op before: devices seldom alternate
  int32_t last_index_ = 0;
};

// Programs without a block plane.
std::vector<RecordedDevice> driver_calls(EventStream& events, const ProcessFacts& facts,
                                         bool served_only, const ReadSettings& settings) {
  std::map<int32_t, std::unique_ptr<CallListBuilder>> builders;
  DriverRequests requests(served_only);
  std::vector<BlockOp> ops;
  events.rewind();
  for (auto batch = events.next_batch(); !batch.empty(); batch = events.next_batch()) {
    for (const Event& event : batch) {
      requests.feed(event, ops);
      for (const BlockOp& op : ops) {
        auto& builder = builders[op.device];
        if (!builder) builder = std::make_unique<CallListBuilder>(settings.with_seqs);
        builder->feed(op);
      }
    }
  }
  std::vector<RecordedDevice> result;
  for (auto& [index, builder] : builders) {
    RecordedDevice& device = result.emplace_back();
    device.device = index;
    device.calls = builder->finish();
    set_capacity(device, facts.device(index), std::nullopt, 0, settings.device_memory);
  }
  return result;
}

void note_assumptions(const BlockPlane& plane, RecordedProcess& process) {
  if (process.source == BlockSource::report) {
    process.assumptions.push_back(
        "requested sizes are not known (c10 memory reports): block sizes stand for them");
    process.assumptions.push_back(
        "streams and completions are not known (c10 memory reports): one stream is assumed, and "
        "that a freed block is free at once");
  } else if (plane.blocks_without_stream() > 0) {
    process.assumptions.push_back(std::to_string(plane.blocks_without_stream()) +
                                  " block(s) came without a stream: the default one is assumed");
  }
}

std::string undecidable_reason(const BlockPlane& plane, const RecordedProcess& process) {
  const bool blind = process.source == BlockSource::report ||
                     (process.source != BlockSource::adaptor && plane.blocks_without_stream() > 0);
  if (!blind) return {};
  const std::string source =
      "the block source (" + std::string(block_source_name(process.source)) + ") tells no streams";
  if (plane.saw_streams()) return source + ", and the process created streams";
  if (!process.perfect()) {
    return source + ", and the recorded run does not follow from the assumption of one stream";
  }
  return {};
}

}  // namespace

bool RecordedProcess::perfect() const {
  return std::all_of(devices.begin(), devices.end(), [](const RecordedDevice& device) {
    return !device.verify || device.verify->perfect();
  });
}

RecordedProcess read_process(EventStream& events, const ProcessFacts& facts,
                             const ReadSettings& settings) {
  RecordedProcess process;
  process.rules = recorded_rules(facts, settings.split_rule, process.assumptions);
  BlockPlanePass pass(facts, process.rules, settings);
  pass.run(events);
  process.source = pass.plane().source();
  if (process.source == BlockSource::none) {
    process.modelled = true;
    process.devices = driver_calls(events, facts, pass.plane().saw_served_calls(), settings);
    process.assumptions.push_back(
        "the process has no caching allocator that reports its blocks; each cudaMalloc and "
        "cudaFree is taken as a request to PyTorch's allocator on one stream");
    return process;
  }
  process.devices = pass.finish();
  note_assumptions(pass.plane(), process);
  process.undecidable = undecidable_reason(pass.plane(), process);
  return process;
}

}  // namespace fragscope::replay
