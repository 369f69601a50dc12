#include "replay/replayer.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/bytes.h"
#include "replay/recorded_process.h"

namespace fragscope::replay {
namespace {

DeviceReplay verified(RecordedDevice& device) {
  DeviceReplay answer;
  answer.device = device.device;
  answer.verify = std::move(device.verify);
  answer.figures = std::move(device.figures);
  answer.segments = std::move(device.segments);
  answer.at_oom = std::move(device.at_oom);
  return answer;
}

DeviceReplay recomputed(RecordedDevice& device, const Backend& backend) {
  BackendRun run = backend.run(device.calls, device.backend_device());
  DeviceReplay answer;
  answer.device = device.device;
  answer.verify = std::move(device.verify);
  answer.figures = std::move(run.figures);
  answer.capacity = device.capacity;
  answer.ooms_avoided = run.ooms_avoided;
  answer.segments = std::move(run.segments);
  if (run.first_oom) {
    answer.at_oom =
        SegmentsAt{device.calls.seqs[*run.first_oom], 0, std::move(run.segments_at_oom)};
  }
  return answer;
}

// Time and stack of the requests that failed: their events are looked up once more.
void complete_ooms(EventStream& events, std::vector<DeviceReplay>& devices) {
  std::unordered_multimap<uint64_t, OomFact*> facts;
  std::unordered_multimap<uint64_t, SegmentsAt*> moments;
  for (DeviceReplay& device : devices) {
    if (device.figures) {
      for (OomFact& oom : device.figures->ooms) facts.emplace(oom.seq, &oom);
    }
    if (device.at_oom) moments.emplace(device.at_oom->seq, &*device.at_oom);
  }
  if (facts.empty() && moments.empty()) return;
  events.rewind();
  for (auto batch = events.next_batch(); !batch.empty(); batch = events.next_batch()) {
    for (const Event& event : batch) {
      for (auto [at, end] = facts.equal_range(event.seq); at != end; ++at) {
        at->second->time_ns = event.time_ns;
        at->second->stack = event.stack;
      }
      for (auto [at, end] = moments.equal_range(event.seq); at != end; ++at) {
        at->second->time_ns = event.time_ns;
      }
    }
  }
}

void note_release(const ProcessFacts& facts, const std::optional<std::string>& asked,
                  ProcessReplay& result) {
  // The policy of --enforce=shim is the newest release's by itself.
  if (!result.torch_version_assumed || facts.property("enforce") == "shim") return;
  const std::string lacking =
      asked ? "there are no rules for torch " + *asked : "the trace names no known torch release";
  result.assumptions.push_back(lacking + ": the rules of " + result.torch_version + " are used");
}

void recompute(EventStream& events, const Rules& rules, RecordedProcess& process,
               ProcessReplay& result) {
  const auto backend = torch_backend(rules.profile, rules.config);
  for (RecordedDevice& device : process.devices) {
    result.devices.push_back(recomputed(device, *backend));
  }
  complete_ooms(events, result.devices);
}

}  // namespace

Result<Rules> asked_rules(const ProcessFacts& facts, const ReplayOptions& options) {
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

bool ProcessReplay::perfect() const {
  return std::all_of(devices.begin(), devices.end(), [](const DeviceReplay& device) {
    return !device.verify || device.verify->perfect();
  });
}

Result<ProcessReplay> replay_process(EventStream& events, const ProcessFacts& facts,
                                     const ReplayOptions& options) {
  auto asked = asked_rules(facts, options);
  if (!asked && options.what_if()) return asked.error();
  ReadSettings settings;
  settings.with_calls = settings.with_seqs = true;
  if (!options.what_if()) settings.with_calls = false;
  settings.split_rule = options.split_rule;
  settings.device_memory = options.device_memory;
  RecordedProcess process = read_process(events, facts, settings);

  const Rules& rules = options.what_if() ? asked.value() : process.rules;
  ProcessReplay result;
  result.source = process.source;
  result.torch_version = std::string(rules.profile.name);
  result.torch_version_assumed = rules.assumed;
  result.alloc_conf = rules.conf;
  result.assumptions = process.assumptions;
  if (process.modelled) {
    result.mode = ReplayMode::modelled;
    recompute(events, rules, process, result);
    return result;
  }
  note_release(facts, options.torch_version, result);
  if (options.what_if() && process.undecidable.empty()) {
    result.mode = ReplayMode::what_if;
    if (process.start_blocks > 0) result.assumptions.push_back(kStartAssumption);
    if (!process.perfect()) {
      result.assumptions.push_back(
          "the recorded run was not reproduced in every detail (see verify); the answer may be "
          "off");
    }
    recompute(events, rules, process, result);
    return result;
  }
  for (RecordedDevice& device : process.devices) result.devices.push_back(verified(device));
  if (!options.what_if() && !process.empty) return result;
  result.mode = ReplayMode::undecidable;
  result.reason = process.undecidable;
  for (DeviceReplay& device : result.devices) device.figures.reset();
  return result;
}

}  // namespace fragscope::replay
