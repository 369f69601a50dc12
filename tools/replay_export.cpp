#include "tools/replay_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/bytes.h"
#include "import/read_snapshot.h"
#include "metrics/process_metrics.h"
#include "replay/state_at.h"
#include "tools/command.h"
#include "tools/json_text.h"
#include "tools/moment.h"
#include "tools/run_analysis.h"
#include "tools/snapshot_file.h"
#include "tools/version.h"

namespace fragscope::tools {
namespace {

trace::TraceReader* chosen_process(OpenRun& run, const ExportOptions& options) {
  trace::TraceReader* best = nullptr;
  for (trace::TraceReader& reader : run.processes) {
    reader.load_tables();
    if (options.pid && reader.process().pid != *options.pid) continue;
    if (best == nullptr || reader.process().event_count > best->process().event_count) {
      best = &reader;
    }
  }
  return best;
}

// The event after which the recorded allocator had handed out most bytes for the first time.
Result<uint64_t> seq_of_peak(trace::TraceReader& reader, const replay::ProcessFacts& facts) {
  ProcessEvents sized(reader, facts);
  const auto metrics = metrics::measure_process(sized.stream(), facts);
  uint64_t most = 0;
  std::optional<uint64_t> seq;
  for (const auto& [index, device] : metrics.devices) {
    if (!device.heap || !device.at_peak) continue;
    const uint64_t peak = device.heap->allocated.peak.value_or(0);
    if (seq && peak <= most) continue;
    most = peak;
    seq = device.at_peak->seq;
  }
  if (seq) return *seq;
  return Error{ErrorCode::kInvalidArgument,
               "no peak is known: the process has no allocator that reports its blocks; ask for "
               "the end or for an event"};
}

// The event of the first request that failed, on any device.
Result<uint64_t> seq_of_oom(trace::TraceReader& reader, const replay::ProcessFacts& facts,
                            const replay::ReplayOptions& options) {
  replay::TraceStream stream(reader);
  const auto replayed = replay::replay_process(stream, facts, options);
  if (!replayed) return replayed.error();
  std::optional<uint64_t> seq;
  for (const replay::DeviceReplay& device : replayed->devices) {
    if (device.at_oom) seq = std::min(seq.value_or(UINT64_MAX), device.at_oom->seq);
  }
  if (seq) return *seq;
  return Error{ErrorCode::kInvalidArgument,
               "no request failed, in the recording or in the replay; ask for the peak, the end or "
               "an event"};
}

Result<uint64_t> seq_of_event(trace::TraceReader& reader, uint64_t asked) {
  replay::TraceStream stream(reader);
  uint64_t last = 0;
  for (auto batch = stream.next_batch(); !batch.empty(); batch = stream.next_batch()) {
    last = batch.back().seq;
    if (last >= asked) return asked;
  }
  return Error{ErrorCode::kInvalidArgument, not_recorded_text(asked, last)};
}

Result<std::optional<uint64_t>> moment_of(trace::TraceReader& reader,
                                          const replay::ProcessFacts& facts,
                                          const ExportOptions& options) {
  if (options.at == "end") return std::optional<uint64_t>();
  const auto event = moment_event(options.at);
  Result<uint64_t> seq = event                  ? seq_of_event(reader, *event)
                         : options.at == "peak" ? seq_of_peak(reader, facts)
                                                : seq_of_oom(reader, facts, options.replay);
  if (!seq) return seq.error();
  return std::optional<uint64_t>(*seq);
}

struct Written {
  uint64_t segments = 0;
  uint64_t blocks = 0;
  uint64_t entries = 0;
  uint64_t reserved = 0;
  uint64_t allocated = 0;
};

Written contents_of(const replay::ProcessState& state) {
  Written written;
  for (const replay::DeviceState& device : state.devices) {
    written.entries += device.trace.size();
    for (const model::SegmentSnapshot& segment : device.segments) {
      ++written.segments;
      written.blocks += segment.blocks.size();
      written.reserved += segment.total_size;
      written.allocated += segment.allocated_size;
    }
  }
  return written;
}

std::string_view word_for(replay::ReplayMode mode) {
  switch (mode) {
    case replay::ReplayMode::verified:
      return "recorded";
    case replay::ReplayMode::modelled:
      return "modelled";
    default:
      return "what_if";
  }
}

int tell(const ExportOptions& options, const replay::ProcessState& state, uint32_t pid,
         std::optional<uint64_t> seq) {
  const Written written = contents_of(state);
  if (options.json) {
    return print_output(document_text({{"schema", 1},
                                       {"fragscope_version", FRAGSCOPE_VERSION},
                                       {"output", options.output},
                                       {"pid", pid == 0 ? Json(nullptr) : Json(pid)},
                                       {"mode", word_for(state.mode)},
                                       {"torch_version", state.profile.name},
                                       {"alloc_conf", state.config.text},
                                       {"at", options.at},
                                       {"seq", or_null(seq)},
                                       {"segments", written.segments},
                                       {"blocks", written.blocks},
                                       {"trace_entries", written.entries},
                                       {"reserved_bytes", written.reserved},
                                       {"allocated_bytes", written.allocated}}));
  }
  return print_output(fmt::format(
      "{}: process {} {}, torch {}: {} segment(s) ({} reserved, {} allocated), {} block(s), {} "
      "trace entries\nopen it with PyTorch's memory_viz, or as any other RUN here\n",
      one_line(options.output), pid_text(pid),
      seq ? "after event " + std::to_string(*seq) : std::string("at the end"), state.profile.name,
      written.segments, format_size(written.reserved), format_size(written.allocated),
      written.blocks, written.entries));
}

// A device that no snapshot can have: damaged recordings may name any.
std::optional<int32_t> device_beyond(const replay::ProcessState& state) {
  for (const replay::DeviceState& device : state.devices) {
    if (device.device < 0 || static_cast<size_t>(device.device) >= imported::kMostDevices) {
      return device.device;
    }
  }
  return std::nullopt;
}

}  // namespace

int export_snapshot(OpenRun& run, const ExportOptions& options) {
  trace::TraceReader* reader = chosen_process(run, options);
  if (reader == nullptr) {
    if (options.pid) return fail("--pid: no such process is recorded", kExitUsage);
    const int code = reading_exit_code(run, 0);
    return code == kExitNothingRecorded ? fail(run.path + ": no events were recorded", code) : code;
  }
  const replay::ProcessFacts facts = process_facts(run, *reader);
  const auto seq = moment_of(*reader, facts, options);
  if (!seq) return fail("--at " + options.at + ": " + seq.error().text, kExitNo);
  replay::StateSettings settings;
  settings.seq = *seq;
  settings.trace_entries = options.trace_entries;
  replay::TraceStream stream(*reader);
  const auto state = replay::state_at(stream, facts, options.replay, settings);
  if (!state) return fail(state.error());
  const int code = reading_exit_code(run, reader->process().event_count);
  if (code != kExitOk) {
    return code == kExitNothingRecorded ? fail(run.path + ": no events were recorded", code) : code;
  }
  if (const auto device = device_beyond(*state)) {
    return fail(
        fmt::format("{}: process {} used device {}, a snapshot has devices 0 to {}: nothing "
                    "is written",
                    run.path, pid_text(reader->process().pid), *device, imported::kMostDevices - 1),
        kExitInput);
  }
  symbolize::Symbolizer symbolizer(reader->tables(), options.places);
  std::ofstream file(options.output, std::ios::binary | std::ios::trunc);
  write_snapshot_file(file, *state, reader->process(), symbolizer);
  file.close();
  if (!file) return fail(options.output + ": cannot be written", kExitOutput);
  return tell(options, *state, reader->process().pid, *seq);
}

}  // namespace fragscope::tools
