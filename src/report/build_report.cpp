#include "report/build_report.h"

#include <algorithm>
#include <string_view>

#include "event/event_names.h"
#include "metrics/gaps.h"
#include "metrics/pinning.h"
#include "metrics/top_stacks.h"
#include "report/stack_lines.h"

namespace fragscope::report {
namespace {

using metrics::LayoutBlock;
using metrics::Moment;
using metrics::ProcessMetrics;

BlockData block_data(const LayoutBlock& block, const StackLines& stacks) {
  BlockData data;
  data.address = block.address;
  data.size = block.size;
  if (block.requested != kUnknown) data.requested = block.requested;
  data.stack = stacks.lines(block.stack, block.seq);
  return data;
}

std::optional<BlockData> live_neighbour(const std::optional<LayoutBlock>& block,
                                        const StackLines& stacks) {
  if (!block) return std::nullopt;
  return block_data(*block, stacks);
}

void sum_up(MomentData& data) {
  for (const metrics::LayoutSegment& segment : data.layout) {
    const uint64_t active = segment.active_bytes();
    data.segment_bytes += segment.size;
    data.active_bytes += active;
    if (active == 0) {
      data.idle_bytes += segment.size;
    } else {
      data.stuck_bytes += segment.size - active;
    }
  }
}

// The picture and its sums alone.
MomentData bare_moment(std::string name, const Moment& moment) {
  MomentData data;
  data.name = std::move(name);
  if (moment.seq != 0) data.seq = moment.seq;
  if (moment.seq != 0) data.time_ns = moment.time_ns;
  data.layout = moment.layout;
  sum_up(data);
  return data;
}

MomentData moment_data(std::string name, const Moment& moment, const StackLines& stacks,
                       const BuildOptions& options) {
  MomentData data = bare_moment(std::move(name), moment);
  for (const metrics::Gap& gap : metrics::largest_gaps(moment.layout, options.rows)) {
    data.gaps.push_back({gap.address, gap.size, gap.segment_address, gap.segment_size,
                         live_neighbour(gap.before, stacks), live_neighbour(gap.after, stacks)});
  }
  for (const metrics::PinnedSegment& pin :
       metrics::emptiest_segments(moment.layout, options.rows, options.blocks_per_pin)) {
    PinData row{pin.address, pin.size, pin.active_bytes, pin.inactive_bytes, {}};
    for (const LayoutBlock& block : pin.blocks) row.blocks.push_back(block_data(block, stacks));
    data.pins.push_back(std::move(row));
  }
  for (const metrics::StackBytes& stack : metrics::top_stacks(moment.layout, options.rows)) {
    data.top_stacks.push_back(
        {stack.bytes, stack.blocks, stacks.lines(stack.stack, stack.last_seq)});
  }
  return data;
}

std::vector<OomData> oom_data(const std::vector<replay::OomFact>& ooms, const StackLines& stacks) {
  std::vector<OomData> data;
  data.reserve(ooms.size());
  for (const replay::OomFact& oom : ooms) {
    data.push_back(
        {oom.seq, oom.time_ns, oom.requested, oom.device_free, stacks.lines(oom.stack, oom.seq)});
  }
  return data;
}

DriverAccountsData accounts_data(const metrics::DriverAccounts& accounts) {
  const auto level = [](const metrics::Gauge& gauge) { return metrics::KnownLevel::of(gauge); };
  return {level(accounts.plain),    level(accounts.stream_ordered), level(accounts.arrays),
          level(accounts.graphs),   level(accounts.physical),       level(accounts.managed),
          level(accounts.reserved), level(accounts.mapped)};
}

std::vector<FailureData> failure_data(const ProcessMetrics& measured, const StackLines& stacks) {
  std::vector<FailureData> data;
  for (const metrics::FailedCall& call : measured.failures) {
    FailureData entry;
    const auto name = measured.facts.api_names.find(call.api);
    if (name != measured.facts.api_names.end()) entry.function = name->second;
    entry.kind = kind_name(call.kind);
    entry.result = call.result;
    entry.probe = call.probe;
    entry.count = call.count;
    entry.largest_bytes = call.largest_bytes;
    entry.seq = call.seq;
    entry.time_ns = call.time_ns;
    if (call.device >= 0) entry.device = call.device;
    entry.held_bytes = call.held_bytes;
    entry.free_bytes = call.free_bytes;
    entry.stack = stacks.lines(call.stack, call.seq);
    data.push_back(std::move(entry));
  }
  return data;
}

std::vector<PinnedHolderData> pinned_holders(const ProcessMetrics& measured,
                                             const StackLines& stacks, size_t rows) {
  std::vector<PinnedHolderData> data;
  for (const metrics::PinnedHolder& holder : measured.pinned_holders) {
    if (data.size() == rows) break;
    data.push_back({holder.peak_bytes, holder.peak_count, holder.final_bytes, holder.torch_host,
                    stacks.lines(holder.stack, holder.last_seq)});
  }
  return data;
}

SharedMemoryData shared_data(const metrics::SharedMemory& shared) {
  SharedMemoryData data;
  data.exports = shared.exports();
  for (const metrics::OpenedMemory& opened : shared.opened()) {
    data.opened_keys.push_back(opened.key);
    data.opened.push_back({std::nullopt, std::nullopt, opened.closed});
  }
  data.handles_exported = shared.handles_exported();
  data.handles_imported = shared.handles_imported();
  data.external_bytes = metrics::KnownLevel::of(shared.external());
  return data;
}

DeviceData device_frame(const metrics::DeviceMetrics& measured) {
  DeviceData data;
  if (measured.device >= 0) data.index = measured.device;
  data.name = measured.facts.name;
  data.uuid = measured.facts.uuid;
  data.simulated = measured.facts.simulated;
  data.total_bytes = measured.facts.total_bytes;
  data.card_bytes = measured.facts.card_bytes;
  data.driver_bytes = measured.driver;
  if (measured.accounts) data.accounts = accounts_data(*measured.accounts);
  data.memory_info = measured.memory_info;
  return data;
}

DeviceData device_data(const metrics::DeviceMetrics& measured, const StackLines& stacks,
                       const BuildOptions& options) {
  DeviceData data = device_frame(measured);
  if (!measured.heap) return data;
  data.reserved_bytes = measured.heap->reserved;
  data.allocated_bytes = measured.heap->allocated;
  data.active_bytes = measured.heap->active;
  data.requested_bytes = measured.heap->requested;
  data.inactive_split_bytes = measured.heap->inactive_split;
  data.segments = measured.heap->segments;
  data.ooms = oom_data(measured.ooms, stacks);
  if (measured.at_oom) {
    data.moments.push_back(moment_data("oom", *measured.at_oom, stacks, options));
  }
  if (measured.at_peak) {
    data.moments.push_back(moment_data("peak", *measured.at_peak, stacks, options));
  }
  if (measured.at_end) {
    data.moments.push_back(moment_data("end", *measured.at_end, stacks, options));
  }
  return data;
}

ExitData exit_data(const trace::ProcessExit& exit) {
  ExitData data;
  data.kind = replay::exit_kind_name(exit.kind);
  if (exit.kind == trace::ExitKind::exited || exit.kind == trace::ExitKind::signaled) {
    data.code = exit.code;
  }
  return data;
}

void note_source(const ProcessMetrics& measured, std::vector<std::string>& notes) {
  switch (measured.source) {
    case replay::BlockSource::none:
      notes.push_back(
          "no block source: only CUDA's own calls were seen; what a caching allocator of the "
          "program does inside its segments is not known");
      return;
    case replay::BlockSource::report:
      notes.push_back(
          "block source: c10 memory reports; sizes are block sizes, requested sizes, streams and "
          "late completions are not known");
      return;
    case replay::BlockSource::snapshot:
      notes.push_back(
          "block source: a snapshot that PyTorch wrote; only the caching allocator's memory is in "
          "it, CUDA's own calls and pinned memory are not");
      notes.insert(notes.end(), measured.source_notes.begin(), measured.source_notes.end());
      return;
    default:
      return;
  }
}

void note_gaps(const replay::ProcessFacts& facts, std::vector<std::string>& notes) {
  if (facts.overwritten_events > 0) {
    notes.push_back(replay::overwritten_text(facts));
  }
  if (facts.dropped_events > 0) {
    notes.push_back(std::to_string(facts.dropped_events) +
                    " events found no room in the log: allocations and frees are missing, figures "
                    "may be too low or too high");
  }
  if (facts.unwritten_events > 0) {
    notes.push_back(std::to_string(facts.unwritten_events) +
                    " events came after the trace had reached its bound (--max-trace): figures are "
                    "of the time before, peaks are lower bounds");
  }
  if (const auto least = facts.property("stacks.min_bytes")) {
    notes.push_back("memory of less than " + *least +
                    " bytes was recorded without call stacks (--min-size)");
  }
}

ProcessData process_frame(const ProcessMetrics& measured) {
  ProcessData data;
  data.pid = measured.facts.pid;
  data.program = measured.facts.program;
  data.exit = exit_data(measured.facts.exit);
  data.events = measured.events;
  data.dropped_events = measured.facts.dropped_events;
  data.torn_records = measured.facts.torn_records;
  data.failed_calls = measured.failed_calls;
  data.probes = measured.probes;
  if (measured.driver_events > 0) data.shared = shared_data(measured.shared);
  data.anomalies = measured.anomalies;
  data.block_source = replay::block_source_name(measured.source);
  data.coverage = measured.coverage;
  data.pinned_driver = measured.pinned_driver;
  if (measured.torch_host) {
    data.pinned_torch_host = metrics::KnownLevel::of(measured.torch_host->held);
    data.pinned_most_padding = metrics::KnownLevel::of(measured.torch_host->most_padding);
  }
  note_source(measured, data.notes);
  note_gaps(measured.facts, data.notes);
  return data;
}

std::string_view mode_name(replay::ReplayMode mode) {
  switch (mode) {
    case replay::ReplayMode::verified:
      return "verified";
    case replay::ReplayMode::what_if:
      return "what_if";
    case replay::ReplayMode::modelled:
      return "modelled";
    case replay::ReplayMode::undecidable:
      return "undecidable";
  }
  return "undecidable";
}

VerifyData verify_data(const replay::VerifyCounts& counts) {
  VerifyData data{counts.block_events, counts.address_matches, counts.segment_calls,
                  counts.segment_matches, std::nullopt};
  if (const auto& first = counts.first_divergence) {
    data.first_divergence =
        DivergenceData{first->seq, first->predicted, first->recorded, first->rule, first->reason};
  }
  return data;
}

void put_replayed(const metrics::ReplayedDevice& replayed, replay::ReplayMode mode,
                  DeviceData& data) {
  if (mode == replay::ReplayMode::what_if) {
    data.driver_bytes = {};
    data.accounts.reset();
    data.memory_info.reset();
  }
  data.modelled = mode == replay::ReplayMode::modelled;
  data.reserved_bytes = replayed.reserved;
  data.allocated_bytes = replayed.allocated;
  data.active_bytes = replayed.active;
  data.requested_bytes = replayed.requested;
  data.inactive_split_bytes = replayed.inactive_split;
  data.segments = replayed.segments;
  if (replayed.ooms) data.ooms = oom_data(*replayed.ooms, StackLines(nullptr, {}));
  if (replayed.verify) data.verify = verify_data(*replayed.verify);
  data.capacity_bytes = replayed.capacity;
  data.device_mallocs = replayed.device_mallocs;
  data.device_frees = replayed.device_frees;
  data.ooms_avoided = replayed.ooms_avoided;
  const bool ends_there = replayed.at_oom && replayed.at_oom->layout == replayed.at_end;
  if (replayed.at_oom) {
    data.moments.push_back(bare_moment(ends_there ? "oom_and_end" : "oom", *replayed.at_oom));
  }
  if (!replayed.at_end.empty() && !ends_there) {
    data.moments.push_back(bare_moment("end", {0, 0, replayed.at_end}));
  }
}

}  // namespace

ProcessData build_process(const ProcessMetrics& measured, symbolize::Symbolizer* symbols,
                          const BuildOptions& options) {
  ProcessData data = process_frame(measured);
  const StackLines stacks(symbols, {options.frames, options.fold});
  data.failures = failure_data(measured, stacks);
  data.pinned_holders = pinned_holders(measured, stacks, options.rows);
  for (const auto& [index, device] : measured.devices) {
    data.devices.push_back(device_data(device, stacks, options));
  }
  return data;
}

ProcessData build_replayed_process(const ProcessMetrics& measured,
                                   const metrics::ReplayMetrics& replayed) {
  ProcessData data = process_frame(measured);
  data.replay = ReplayData{std::string(mode_name(replayed.mode)), std::nullopt,
                           replayed.torch_version, replayed.alloc_conf};
  if (!replayed.reason.empty()) data.replay->reason = replayed.reason;
  data.notes = replayed.assumptions;
  for (const auto& [index, device] : measured.devices) {
    DeviceData entry = device_frame(device);
    for (const metrics::ReplayedDevice& candidate : replayed.devices) {
      if (candidate.device == index) put_replayed(candidate, replayed.mode, entry);
    }
    data.devices.push_back(std::move(entry));
  }
  return data;
}

std::vector<PhaseData> phases_of(const ProcessMetrics& measured,
                                 const std::unordered_map<uint32_t, std::string>& texts) {
  std::vector<PhaseData> result;
  for (const metrics::Phase& phase : measured.phases) {
    const auto name = texts.find(phase.text);
    // Without a driver plane (a snapshot) nothing was held that anybody saw.
    const auto driver =
        measured.driver_events > 0 ? std::optional(phase.driver_peak) : std::nullopt;
    result.push_back({name == texts.end() ? std::string() : name->second, phase.count,
                      phase.total_ns, driver, phase.allocated_peak, phase.allocated_growth});
  }
  return result;
}

void link_shared_memory(ReportData& report) {
  std::map<uint64_t, std::pair<uint32_t, std::optional<uint64_t>>> owners;
  for (const ProcessData& process : report.processes) {
    if (!process.shared) continue;
    for (const auto& [key, bytes] : process.shared->exports) owners[key] = {process.pid, bytes};
  }
  for (ProcessData& process : report.processes) {
    if (!process.shared) continue;
    for (size_t i = 0; i < process.shared->opened.size(); ++i) {
      const auto owner = owners.find(process.shared->opened_keys[i]);
      if (owner == owners.end()) continue;
      process.shared->opened[i].owner_pid = owner->second.first;
      process.shared->opened[i].bytes = owner->second.second;
    }
  }
}

void mark_damaged(const DamageData& damage, ProcessData& process) {
  process.damage = damage;
  process.pinned_driver.final.reset();
  process.pinned_torch_host.final.reset();
  process.pinned_most_padding.final.reset();
  if (process.shared) process.shared->external_bytes.final.reset();
  for (DeviceData& device : process.devices) {
    for (metrics::KnownLevel* level :
         {&device.driver_bytes, &device.reserved_bytes, &device.allocated_bytes,
          &device.active_bytes, &device.requested_bytes, &device.inactive_split_bytes,
          &device.segments}) {
      level->final.reset();
    }
    if (auto& of = device.accounts) {
      for (metrics::KnownLevel* level : {&of->plain, &of->stream_ordered, &of->arrays, &of->graphs,
                                         &of->physical, &of->managed, &of->reserved, &of->mapped}) {
        level->final.reset();
      }
    }
    std::erase_if(device.moments, [](const MomentData& moment) { return moment.name == "end"; });
    for (MomentData& moment : device.moments) {
      if (moment.name == "oom_and_end") moment.name = "oom";
    }
  }
}

}  // namespace fragscope::report
