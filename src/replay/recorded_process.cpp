#include "replay/recorded_process.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "replay/snapshot_notes.h"
#include "replay/verify_pass.h"

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

std::vector<RecordedDevice> recorded_devices(VerifyPass& pass, const ProcessFacts& facts,
                                             const ReadSettings& settings) {
  std::vector<RecordedDevice> result;
  for (auto& [index, device] : pass.devices) {
    const DeviceVerifier& verifier = device->verifier;
    RecordedDevice& recorded = result.emplace_back();
    recorded.device = index;
    recorded.verify = verifier.counts();
    recorded.figures = verifier.figures();
    recorded.segments = verifier.segments();
    recorded.at_oom = verifier.at_oom();
    if (device->calls) recorded.calls = device->calls->finish();
    set_capacity(recorded, facts.device(index), verifier.available_at_oom(),
                 pass.plane.outside_peak(index), settings.device_memory);
  }
  return result;
}

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

// What a snapshot leaves open.
void note_snapshot(const VerifyPass& pass, const ProcessFacts& facts, RecordedProcess& process) {
  for (std::string& note : snapshot_notes(facts)) process.assumptions.push_back(std::move(note));
  StartState start;
  for (const auto& [index, device] : pass.devices) {
    const StartState& state = device->verifier.start_state();
    start.blocks += state.blocks;
    start.sizes_inferred += state.sizes_inferred;
    start.lost += state.lost;
  }
  process.start_blocks = start.blocks;
  if (start.sizes_inferred > 0) {
    process.assumptions.push_back(
        "the size of " + std::to_string(start.sizes_inferred) +
        " block(s) from before the trace is not told: it follows from the request and from what "
        "lies behind");
  }
  if (start.lost > 0) {
    process.assumptions.push_back(std::to_string(start.lost) +
                                  " block(s) from before the trace fit into no segment and are "
                                  "left out");
  }
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

void note_own_limit(RecordedProcess& process) {
  uint64_t refusals = 0;
  for (const RecordedDevice& device : process.devices) {
    if (device.verify) refusals += device.verify->unasked_refusals;
  }
  if (refusals == 0) return;
  process.assumptions.push_back(
      std::to_string(refusals) +
      " time(s) the allocator refused memory, or released some, without having asked CUDA: it kept "
      "to a limit of its own (set_per_process_memory_fraction), which no recording tells");
}

// Why a what-if of this process cannot be answered; empty: it can.
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

void note_changes(const VerifyPass& pass, const ProcessFacts& facts, RecordedProcess& process) {
  const auto texts = settings_changes(facts.properties);
  for (const auto& [seq, number] : pass.changes) {
    process.assumptions.push_back(
        "the settings were changed while the process ran: " + texts.at(number) + " from event " +
        std::to_string(seq) + " on, which verify follows");
  }
}

// A snapshot of segments alone.
bool nothing_to_replay(const RecordedProcess& process) {
  return process.source == BlockSource::snapshot &&
         std::none_of(process.devices.begin(), process.devices.end(),
                      [](const RecordedDevice& device) {
                        return device.verify && device.verify->block_events > 0;
                      });
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
  VerifyPass pass(events, facts, process.rules, {settings.with_calls, settings.with_seqs});
  process.source = pass.plane.source();
  if (facts.overwritten_events > 0) process.assumptions.push_back(overwritten_text(facts));
  if (process.source == BlockSource::none) {
    process.modelled = true;
    process.devices = driver_calls(events, facts, pass.plane.saw_served_calls(), settings);
    process.assumptions.push_back(
        "the process has no caching allocator that reports its blocks; each cudaMalloc and "
        "cudaFree is taken as a request to PyTorch's allocator on one stream");
    return process;
  }
  process.devices = recorded_devices(pass, facts, settings);
  note_assumptions(pass.plane, process);
  note_own_limit(process);
  note_changes(pass, facts, process);
  if (facts.property("enforce_plan")) {
    process.assumptions.push_back(
        "a plan placed blocks of this run: those do not follow the allocator's rules, and verify "
        "counts them as wrong");
  }
  note_snapshot(pass, facts, process);
  process.empty = nothing_to_replay(process);
  process.undecidable =
      process.empty ? "the snapshot holds segments but no trace of allocations "
                      "(_record_memory_history was off, or kept one entry): there is nothing to "
                      "replay"
                    : undecidable_reason(pass.plane, process);
  if (facts.overwritten_events > 0 && process.undecidable.empty()) {
    process.undecidable = overwritten_text(facts);
  }
  return process;
}

}  // namespace fragscope::replay
