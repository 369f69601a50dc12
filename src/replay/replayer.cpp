#include "replay/replayer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "replay/verifier.h"
#include "replay/what_if.h"

namespace fragscope::replay {
namespace {

template <typename Device>
using Devices = std::map<int32_t, std::unique_ptr<Device>>;

struct Rules {
  model::VersionProfile profile;
  bool assumed = false;  // no known release was named
  std::string conf;
  model::AllocatorConfig config;
};

Result<Rules> rules_of(const std::optional<std::string>& version, const std::string& conf,
                       model::SplitRule split_rule) {
  Rules rules;
  const model::ProfileMatch match = model::find_version_profile(version.value_or(""));
  rules.profile = *match.profile;
  rules.profile.split_rule = split_rule;
  rules.assumed = !match.exact;
  rules.conf = conf;
  auto config = model::parse_config(conf, rules.profile);
  if (!config) return config.error();
  rules.config = std::move(config).value();
  return rules;
}

// The settings that torch of this release took from the recorded process's variables.
std::string recorded_conf(const ProcessFacts& facts, const std::optional<std::string>& version) {
  if (const auto conf = facts.property("alloc_conf")) return *conf;
  const model::ProfileMatch match = model::find_version_profile(version.value_or(""));
  if (!match.profile->has_generic_variable) return {};
  return facts.property("alloc_conf.generic").value_or("");
}

// The recorded process's own rules. A setting that its release would have refused cannot have been
// in force: it is left out and said.
Rules recorded_rules(const ProcessFacts& facts, model::SplitRule split_rule,
                     std::vector<std::string>& assumptions) {
  const auto version = facts.property("torch_version");
  const std::string conf = recorded_conf(facts, version);
  auto rules = rules_of(version, conf, split_rule);
  if (rules) return std::move(rules).value();
  assumptions.push_back("the recorded allocator settings are not used: " + rules.error().text);
  auto plain = rules_of(version, "", split_rule);
  return std::move(plain).value();
}

Result<Rules> what_if_rules(const ProcessFacts& facts, const ReplayOptions& options) {
  std::string conf =
      options.alloc_conf.value_or(recorded_conf(facts, facts.property("torch_version")));
  if (options.max_split_size_bytes) {
    if (!conf.empty()) conf += ",";
    conf += "max_split_size_mb:" + std::to_string(*options.max_split_size_bytes / kMiB);
  }
  const auto version =
      options.torch_version ? options.torch_version : facts.property("torch_version");
  return rules_of(version, conf, options.split_rule);
}

// One pass over a recorded process.
struct VerifyPass {
  BlockPlane plane;
  Devices<DeviceVerifier> devices;

  VerifyPass(EventStream& events, const ProcessFacts& facts, const Rules& rules)
      : plane(facts.block_source) {
    const auto take = [&](const BlockOp& op) {
      if (DeviceVerifier* device = verifier(op, facts, rules)) device->feed(op);
    };
    const auto freed = [&](const BlockOp& op) {
      if (DeviceVerifier* device = verifier(op, facts, rules)) device->feed_freed(op);
    };
    events.rewind();
    for (auto batch = events.next_batch(); !batch.empty(); batch = events.next_batch()) {
      plane.feed(batch, take, freed);
    }
    std::erase_if(devices, [](const auto& entry) { return !entry.second; });
    for (auto& [index, device] : devices) device->finish();
  }

 private:
  // nullptr: no allocator's op.
  DeviceVerifier* verifier(const BlockOp& op, const ProcessFacts& facts, const Rules& rules) {
    if (last_ != nullptr && op.device == last_index_) return last_;
    auto& device = devices[op.device];
    if (!device && op.kind == BlockOpKind::segment_refused) return nullptr;
    if (!device) {
      VerifySettings settings;
      settings.config = rules.config;
      settings.profile = &rules.profile;
      settings.total_bytes = facts.device(op.device).total_bytes;
      device = std::make_unique<DeviceVerifier>(settings);
    }
    last_ = device.get();
    last_index_ = op.device;
    return last_;
  }

  DeviceVerifier* last_ = nullptr;  // of the op before: devices seldom alternate
  int32_t last_index_ = 0;
};

struct Capacity {
  std::optional<uint64_t> bytes;  // absent: unlimited
  std::optional<uint64_t> total;
};

uint64_t saturating_minus(uint64_t left, uint64_t right) { return left > right ? left - right : 0; }

// What the allocator could get: what it had when a request failed; else the device's memory without
// what is known to be somebody else's.
Capacity capacity_of(const DeviceFacts& facts, std::optional<uint64_t> at_oom, uint64_t outside,
                     const std::optional<uint64_t>& device_memory) {
  uint64_t others = outside + facts.context_bytes.value_or(0);
  if (at_oom && facts.total_bytes) others = saturating_minus(*facts.total_bytes, *at_oom);
  if (device_memory) return {saturating_minus(*device_memory, others), device_memory};
  if (at_oom) return {at_oom, facts.total_bytes};
  if (!facts.total_bytes) return {};
  return {saturating_minus(*facts.total_bytes, others), facts.total_bytes};
}

std::unique_ptr<DeviceWhatIf> make_what_if(int32_t device, const Capacity& capacity,
                                           const Rules& rules) {
  WhatIfSettings settings;
  settings.config = rules.config;
  settings.profile = &rules.profile;
  settings.device = device;
  settings.capacity = capacity.bytes.value_or(model::LocalCapacity::kUnlimited);
  settings.total_bytes = capacity.total;
  return std::make_unique<DeviceWhatIf>(settings);
}

DeviceReplay answer_of(int32_t device, const DeviceWhatIf& what_if, const Capacity& capacity) {
  DeviceReplay answer;
  answer.device = device;
  answer.figures = what_if.figures();
  answer.capacity = capacity.bytes;
  answer.ooms_avoided = what_if.ooms_avoided();
  answer.segments = what_if.segments();
  answer.at_oom = what_if.at_oom();
  return answer;
}

void run_what_if(EventStream& events, const ProcessFacts& facts, const ReplayOptions& options,
                 const VerifyPass& verified, const Rules& rules, ProcessReplay& result) {
  Devices<DeviceWhatIf> devices;
  std::map<int32_t, Capacity> capacities;
  for (const auto& [index, device] : verified.devices) {
    capacities[index] = capacity_of(facts.device(index), device->available_at_oom(),
                                    verified.plane.outside_peak(index), options.device_memory);
    devices[index] = make_what_if(index, capacities[index], rules);
  }
  BlockPlane plane(facts.block_source);
  const auto take = [&](const BlockOp& op) {
    const auto device = devices.find(op.device);
    if (device != devices.end()) device->second->feed(op);
  };
  events.rewind();
  for (auto batch = events.next_batch(); !batch.empty(); batch = events.next_batch()) {
    for (const Event& event : batch) plane.feed(event, take);
  }
  for (DeviceReplay& answer : result.devices) {
    DeviceWhatIf& device = *devices[answer.device];
    device.finish();
    auto verify = std::move(answer.verify);
    answer = answer_of(answer.device, device, capacities[answer.device]);
    answer.verify = std::move(verify);
  }
}

// Programs without a block plane.
void run_modelled(EventStream& events, const ProcessFacts& facts, const ReplayOptions& options,
                  bool served_only, const Rules& rules, ProcessReplay& result) {
  Devices<DeviceWhatIf> devices;
  std::map<int32_t, Capacity> capacities;
  DriverRequests requests(served_only);
  std::vector<BlockOp> ops;
  Event event;
  events.rewind();
  while (events.next(event)) {
    requests.feed(event, ops);
    for (const BlockOp& op : ops) {
      auto& device = devices[op.device];
      if (!device) {
        capacities[op.device] =
            capacity_of(facts.device(op.device), std::nullopt, 0, options.device_memory);
        device = make_what_if(op.device, capacities[op.device], rules);
      }
      device->feed(op);
    }
  }
  result.mode = ReplayMode::modelled;
  result.devices.clear();
  for (auto& [index, device] : devices) {
    device->finish();
    result.devices.push_back(answer_of(index, *device, capacities[index]));
  }
  result.assumptions.push_back(
      "the process has no caching allocator that reports its blocks; each cudaMalloc and cudaFree "
      "is taken as a request to PyTorch's allocator on one stream");
}

void note_assumptions(const VerifyPass& pass, const ProcessFacts& facts, ProcessReplay& result) {
  if (result.source == BlockSource::report) {
    result.assumptions.push_back(
        "requested sizes are not known (c10 memory reports): block sizes stand for them");
    result.assumptions.push_back(
        "streams and completions are not known (c10 memory reports): one stream is assumed, and "
        "that a freed block is free at once");
  } else if (pass.plane.blocks_without_stream() > 0) {
    result.assumptions.push_back(std::to_string(pass.plane.blocks_without_stream()) +
                                 " block(s) came without a stream: the default one is assumed");
  }
  // The policy of --enforce=shim is the newest release's by itself.
  if (result.torch_version_assumed && facts.property("enforce") != "shim") {
    result.assumptions.push_back("the trace names no known torch release: the rules of " +
                                 result.torch_version + " are used");
  }
}

// Why a what-if of this process cannot be answered; empty: it can.
std::string undecidable_reason(const VerifyPass& pass, const ProcessReplay& result) {
  const bool blind =
      result.source == BlockSource::report ||
      (result.source != BlockSource::adaptor && pass.plane.blocks_without_stream() > 0);
  if (!blind) return {};
  const std::string source =
      "the block source (" + std::string(block_source_name(result.source)) + ") tells no streams";
  if (pass.plane.saw_streams()) return source + ", and the process created streams";
  if (!result.perfect()) {
    return source + ", and the recorded run does not follow from the assumption of one stream";
  }
  return {};
}

void take_verified(const VerifyPass& pass, ProcessReplay& result) {
  for (const auto& [index, device] : pass.devices) {
    const VerifyCounts& counts = device->counts();
    DeviceReplay answer;
    answer.device = index;
    answer.verify = counts;
    answer.figures = device->figures();
    answer.segments = device->segments();
    answer.at_oom = device->at_oom();
    result.devices.push_back(std::move(answer));
  }
}

}  // namespace

bool ProcessReplay::perfect() const {
  return std::all_of(devices.begin(), devices.end(), [](const DeviceReplay& device) {
    return !device.verify || device.verify->perfect();
  });
}

Result<ProcessReplay> replay_process(EventStream& events, const ProcessFacts& facts,
                                     const ReplayOptions& options) {
  ProcessReplay result;
  const Rules recorded = recorded_rules(facts, options.split_rule, result.assumptions);
  auto asked = what_if_rules(facts, options);
  if (!asked && options.what_if()) return asked.error();
  const Rules& rules = options.what_if() ? asked.value() : recorded;
  result.torch_version = std::string(rules.profile.name);
  result.torch_version_assumed = rules.assumed;
  result.alloc_conf = rules.conf;

  const VerifyPass pass(events, facts, recorded);
  result.source = pass.plane.source();
  if (result.source == BlockSource::none) {
    run_modelled(events, facts, options, pass.plane.saw_served_calls(), rules, result);
    return result;
  }
  take_verified(pass, result);
  note_assumptions(pass, facts, result);
  if (!options.what_if()) return result;
  result.reason = undecidable_reason(pass, result);
  if (!result.reason.empty()) {
    result.mode = ReplayMode::undecidable;
    for (DeviceReplay& device : result.devices) device.figures.reset();
    return result;
  }
  result.mode = ReplayMode::what_if;
  if (!result.perfect()) {
    result.assumptions.push_back(
        "the recorded run was not reproduced in every detail (see verify); the answer may be off");
  }
  run_what_if(events, facts, options, pass, rules, result);
  return result;
}

}  // namespace fragscope::replay
