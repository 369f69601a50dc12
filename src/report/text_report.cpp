#include "report/text_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "base/bytes.h"
#include "base/text.h"
#include "report/host_memory.h"
#include "report/segment_map.h"

namespace fragscope::report {
namespace {

using metrics::KnownLevel;

constexpr double kPercent = 100.0;

std::string bytes_text(const std::optional<uint64_t>& bytes) {
  return bytes ? format_size(*bytes) : std::string("unknown");
}

std::string count_text(const std::optional<uint64_t>& count) {
  return count ? std::to_string(*count) : std::string("unknown");
}

std::string share_text(uint64_t part, uint64_t whole) {
  if (whole == 0) return "–";
  return fmt::format("{:.1f} %", kPercent * static_cast<double>(part) / static_cast<double>(whole));
}

// Recorded text must not reach a terminal as it is.
std::string clean(const std::string& text) { return printable(text); }

// At most `room` columns: the middle goes, both ends say most. ASCII names only are cut, so no
// character is split.
std::string shortened(const std::string& text, size_t room) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
  if (!ascii || text.size() <= room) return text;
  const size_t head = room / 2 - 1;
  const size_t tail = room - head - 1;
  return text.substr(0, head) + "…" + text.substr(text.size() - tail);
}

std::string exit_text(const ExitData& exit) {
  if (!exit.code) return exit.kind;
  return fmt::format("{} {}", exit.kind, *exit.code);
}

class TextWriter {
 public:
  explicit TextWriter(const TextStyle& style) : style_(style) {}

  std::string write(const ReportData& report) {
    run(report.run);
    for (const ProcessData& data : report.processes) process(data);
    if (report.processes.empty()) {
      line("Nothing was recorded: {}.",
           clean(report.run.nothing_recorded.value_or("no process of this run touched CUDA")));
    }
    for (const std::string& warning : report.warnings) line("warning: {}", clean(warning));
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  void run(const RunData& run) {
    line("Run {}", clean(run.path));
    if (run.command) {
      std::string command;
      for (const std::string& word : *run.command) command += (command.empty() ? "" : " ") + word;
      line("  command  {}", clean(command));
    }
    if (run.start_time) line("  started  {}", clean(*run.start_time));
    if (run.exit) line("  ended    {}", exit_text(*run.exit));
    if (run.gpu) simulation(run);
    if (run.host_memory) host_memory(*run.host_memory);
  }

  void host_memory(const HostMemoryData& host) {
    constexpr size_t kMostProcesses = 10;
    std::string_view key = "host";
    for (const std::string& text : host_memory_lines(host, kMostProcesses)) {
      line("  {:<8} {}", key, text);
      key = "";
    }
  }

  void simulation(const RunData& run) {
    line("  device   {}, simulated: requests and the allocator's answers are exact, timing is not",
         clean(*run.gpu));
    for (const auto& [key, text] : run.simulation) {
      std::string title = key;
      std::replace(title.begin(), title.end(), '_', ' ');
      line("           {}: {}", clean(title), clean(text));
    }
  }

  void process(const ProcessData& data) {
    line("");
    const std::string pid = data.pid == 0 ? "(pid unknown)" : std::to_string(data.pid);
    line("Process {} {}  ({})", pid, clean(data.program), exit_text(data.exit));
    line("  events   {} {}, {} dropped, {} torn; {} call(s) returned an error{}", data.events,
         data.damage ? "read" : "recorded", data.dropped_events, data.torn_records,
         data.failed_calls,
         data.probes > 0 ? fmt::format(" ({} of them probes for a kind of handle)", data.probes)
                         : "");
    if (data.damage) {
      line("  damage   {}", damage_text(*data.damage));
      line("           figures are of what was read; the state at the end is unknown");
    }
    line("  blocks   source: {}", data.block_source);
    coverage(data);
    if (data.anomalies > 0) {
      line(
          "  {} event(s) contradict others (frees of nothing, blocks without a free): figures may "
          "be off",
          data.anomalies);
    }
    if (data.replay) replay(*data.replay);
    failures(data.failures);
    if (data.shared) shared(*data.shared);
    for (const std::string& note : data.notes) line("  note: {}", clean(note));
    if (!data.replay) {
      pinned(data);
    }
    phases(data);
    for (const DeviceData& entry : data.devices) device(entry);
    if (data.devices.empty()) line("  no device memory was asked for");
  }

  void coverage(const ProcessData& data) {
    const metrics::Coverage& seen = data.coverage;
    std::string unhooked;
    for (const auto& [symbol, count] : seen.unhooked) {
      unhooked += fmt::format("{}{} ({}x)", unhooked.empty() ? "" : ", ", symbol, count);
    }
    line("  coverage {} entry points hooked; passed through unhooked: {}", count_text(seen.hooked),
         unhooked.empty() ? (seen.hooked ? "none" : "unknown") : clean(unhooked));
    if (!seen.calls.empty()) {
      uint64_t calls = 0;
      for (const auto& [symbol, count] : seen.calls) calls += count;
      line("           {} hooked functions were called, {} times", seen.calls.size(), calls);
    }
    for (const std::string& path : seen.cudart) line("           runtime {}", clean(path));
    for (const std::string& path : seen.static_cudart) {
      line("           runtime inside {}", clean(path));
    }
  }

  void pinned(const ProcessData& data) {
    line("  pinned host memory  peak {}, at the end {}", bytes_text(data.pinned_driver.peak),
         bytes_text(data.pinned_driver.final));
    if (data.pinned_torch_host.peak.value_or(0) > 0) {
      line(
          "    of PyTorch's host allocator: peak {}, at the end {}, in blocks of powers of two: at "
          "most {} of the peak is rounding",
          bytes_text(data.pinned_torch_host.peak), bytes_text(data.pinned_torch_host.final),
          bytes_text(data.pinned_most_padding.peak));
    }
    for (const PinnedHolderData& holder : data.pinned_holders) {
      line("    {:>12} at the peak in {}, {} at the end{}{}", format_size(holder.peak_bytes),
           holder.peak_count, format_size(holder.final_bytes),
           holder.torch_host ? ", PyTorch's host allocator" : "",
           holder.stack.empty() ? ", no stack shown" : "");
      stack(holder.stack, 17);
    }
  }

  void phases(const ProcessData& data) {
    if (data.phases.empty()) return;
    constexpr size_t kMostPhases = 20;
    const size_t shown = std::min(data.phases.size(), kMostPhases);
    line("  phases named by the program (first {} of {}; bytes of all devices)", shown,
         data.phases.size());
    line("    {:>12}{:>14}{:>14}{:>8}  name", "CUDA peak", "blocks peak", "grew by", "times");
    for (const PhaseData& phase : std::span(data.phases).first(shown)) {
      line("    {:>12}{:>14}{:>14}{:>8}  {}", bytes_text(phase.driver_peak_bytes),
           bytes_text(phase.allocated_peak_bytes), growth_text(phase.allocated_growth_bytes),
           phase.count, clean(phase.name));
    }
  }

  static std::string growth_text(const std::optional<int64_t>& bytes) {
    if (!bytes) return "unknown";
    const auto size = static_cast<uint64_t>(*bytes < 0 ? -*bytes : *bytes);
    return (*bytes < 0 ? "−" : "+") + format_size(size);
  }

  void failures(const std::vector<FailureData>& calls) {
    constexpr size_t kMostFailures = 10;
    size_t shown = 0;
    for (const FailureData& call : calls) {
      if (call.probe || shown++ >= kMostFailures) continue;
      line("  failed   {} {} time(s) with error {}{}; the first at event {}, {} held{}",
           clean(call.function.value_or(call.kind)), call.count, call.result,
           call.largest_bytes ? ", at most " + format_size(*call.largest_bytes) : "", call.seq,
           format_size(call.held_bytes),
           call.free_bytes ? ", " + format_size(*call.free_bytes) + " free when last asked" : "");
      stack(call.stack, 11);
    }
  }

  void shared(const SharedMemoryData& data) {
    for (const OpenedMemoryData& opened : data.opened) {
      line("  opened   {} of {}, not counted here", bytes_text(opened.bytes),
           opened.owner_pid ? fmt::format("process {}", *opened.owner_pid)
                            : std::string("a process outside this run"));
    }
    if (data.external_bytes.peak.value_or(0) > 0) {
      line("  imported {} of another API at most, not counted here",
           format_size(*data.external_bytes.peak));
    }
  }

  void replay(const ReplayData& data) {
    line("  replay   {}, rules of torch {}, settings \"{}\"", data.mode, data.torch_version,
         clean(data.alloc_conf));
    if (data.reason) line("  undecidable: {}", clean(*data.reason));
  }

  void device(const DeviceData& data) {
    line("");
    line("  Device {}  {}{}, total {}", data.index ? std::to_string(*data.index) : "unknown",
         data.name ? clean(*data.name) : "(name unknown)", simulated(data),
         bytes_text(data.total_bytes));
    if (data.card_bytes) {
      line("    a cap was in force (--memory-limit); the card has {}",
           format_size(*data.card_bytes));
    }
    if (data.capacity_bytes) {
      line("    the allocator can get {} of it", format_size(*data.capacity_bytes));
    }
    levels(data);
    ooms(data);
    if (data.verify) verify(*data.verify);
    for (const MomentData& entry : data.moments) moment(entry);
  }

  static std::string simulated(const DeviceData& data) {
    if (!data.simulated) return ", simulated or real: unknown";
    return *data.simulated ? ", SIMULATED" : ", real";
  }

  void levels(const DeviceData& data) {
    const std::string prefix = data.modelled ? "modelled " : "";
    line("    {:<28}{:>14}{:>14}", "", "peak", "at the end");
    level("driver bytes", data.driver_bytes, "held from CUDA: segments and everything else");
    if (data.accounts) accounts(*data.accounts);
    if (const auto& info = data.memory_info) {
      line(
          "    {:<28}{:>28}  device bytes in use that the books do not have, when the program last "
          "asked",
          "unexplained", signed_size(info->last_unexplained));
    }
    level(prefix + "reserved", data.reserved_bytes, "segments of the caching allocator");
    if (const auto& range = data.reserved_peak_range) {
      line(
          "    {:<28}{:>14}{:>14}  its peak lies between, whatever workspaces cuDNN takes "
          "(assumed)",
          "  low, high", format_size(range->low), format_size(range->high));
    }
    level(prefix + "allocated", data.allocated_bytes, "blocks in the program's hands");
    level(prefix + "requested", data.requested_bytes,
          "what the program asked for, in active blocks");
    level(prefix + "inactive split", data.inactive_split_bytes,
          "free, in segments that cannot be given back");
    // PyTorch counts no expandable segments, and each mapping as a device allocation.
    const bool mapped = data.device_mallocs.value_or(0) > 0 && data.segments.peak == uint64_t{0};
    line("    {:<28}{:>14}{:>14}  number of segments{}", prefix + "segments",
         count_text(data.segments.peak), count_text(data.segments.final),
         mapped ? " (expandable ones are not counted, as in torch.cuda.memory_stats())" : "");
    fragmentation(data);
    if (data.device_mallocs) {
      line("    {} {} times, {} {} times", mapped ? "pages mapped" : "cudaMalloc",
           *data.device_mallocs, mapped ? "unmapped" : "cudaFree", count_text(data.device_frees));
    }
  }

  // Sorts of memory that the process had any of; plain cudaMalloc memory alone needs no line.
  void accounts(const DriverAccountsData& of) {
    const auto used = [](const KnownLevel& value) { return value.peak.value_or(0) > 0; };
    const auto row = [&](const char* name, const KnownLevel& value, const char* meaning) {
      if (used(value)) level(name, value, meaning);
    };
    row("  stream-ordered", of.stream_ordered, "of it: cudaMallocAsync, blocks of pools");
    row("  arrays", of.arrays, "of it: texels of arrays, without CUDA's padding");
    row("  graphs", of.graphs, "of it: allocation nodes of instantiated graphs");
    row("  physical", of.physical, "of it: cuMemCreate");
    row("managed", of.managed, "not in it: on the device as its pages go");
    row("address space", of.reserved, "not in it: cuMemAddressReserve, no memory");
    row("mapped", of.mapped, "not in it: cuMemMap");
  }

  static std::string signed_size(int64_t bytes) {
    const auto size = static_cast<uint64_t>(bytes < 0 ? -bytes : bytes);
    return (bytes < 0 ? "-" : "") + format_size(size);
  }

  void level(const std::string& name, const KnownLevel& value, std::string_view meaning) {
    line("    {:<28}{:>14}{:>14}  {}", name, bytes_text(value.peak), bytes_text(value.final),
         meaning);
  }

  // What of `whole` is not `part`. A run that ends well has given everything back but its cache:
  // its end alone would say that all is waste.
  void share_row(std::string_view name, const KnownLevel& whole, const KnownLevel& part,
                 std::string_view meaning) {
    const auto share = [](const std::optional<uint64_t>& all, const std::optional<uint64_t>& some) {
      return all && some ? share_text(*all - std::min(*some, *all), *all) : std::string("unknown");
    };
    if (!whole.final || !part.final) return;
    line("    {:<28}{:>14}{:>14}  {}", name, share(whole.peak, part.peak),
         share(whole.final, part.final), meaning);
  }

  void fragmentation(const DeviceData& data) {
    share_row(data.modelled ? "modelled fragmentation" : "fragmentation", data.reserved_bytes,
              data.allocated_bytes, "1 − allocated / reserved, of the peaks and at the end");
    share_row(data.modelled ? "modelled rounding" : "rounding", data.active_bytes,
              data.requested_bytes, "1 − requested / active, of the peaks and at the end");
  }

  void ooms(const DeviceData& data) {
    if (!data.ooms) return;
    if (data.ooms_avoided.value_or(0) > 0) {
      line("    {} request(s) that failed in the recording succeed", *data.ooms_avoided);
    }
    constexpr size_t kMostOoms = 10;
    if (data.ooms->size() > kMostOoms) {
      line("    out of memory {} times; the first {}:", data.ooms->size(), kMostOoms);
    }
    for (const OomData& oom : std::span(*data.ooms).first(std::min(data.ooms->size(), kMostOoms))) {
      line("    out of memory at event {}: {} refused, the device had {} left", oom.seq,
           bytes_text(oom.requested_bytes), bytes_text(oom.device_free_bytes));
      stack(oom.stack, 6);
    }
  }

  void verify(const VerifyData& data) {
    line("    verify   {} of {} block addresses ({}), {} of {} segment calls ({})",
         data.address_matches, data.block_events,
         share_text(data.address_matches, data.block_events), data.segment_matches,
         data.segment_calls, share_text(data.segment_matches, data.segment_calls));
    if (const auto& first = data.first_divergence) {
      line("      first difference at event {}: predicted {}; recorded {}", first->seq,
           first->predicted, first->recorded);
      line("      rule: {}", first->rule);
      line("      likely: {}", first->reason);
    }
  }

  void moment(const MomentData& data) {
    line("");
    line("    Segments {}", title(data));
    if (data.segment_bytes > 0) {
      line(
          "      {} in {} segment(s): {} active ({}), {} free between live blocks, {} in idle "
          "segments",
          format_size(data.segment_bytes), data.layout.size(), format_size(data.active_bytes),
          share_text(data.active_bytes, data.segment_bytes), format_size(data.stuck_bytes),
          format_size(data.idle_bytes));
    }
    picture(data);
    gaps(data);
    pins(data);
    top_stacks(data);
  }

  static std::string title(const MomentData& data) {
    if (data.name == "peak") {
      return fmt::format("at the peak of allocated bytes (event {})", data.seq.value_or(0));
    }
    if (data.name == "oom") {
      return fmt::format("at event {}, the first refused request", data.seq.value_or(0));
    }
    if (data.name == "oom_and_end") {
      return fmt::format("at event {}, the first refused request, and at the end",
                         data.seq.value_or(0));
    }
    return "at the end";
  }

  void picture(const MomentData& data) {
    SegmentMapStyle map;
    map.width = std::max<size_t>(style_.width, 66) - 6;
    map.max_rows = style_.map_rows;
    map.color = style_.color;
    map.utf8 = style_.utf8;
    const std::string text = render_segment_map(data.layout, map);
    size_t at = 0;
    while (at < text.size()) {
      const size_t end = text.find('\n', at);
      out_ += "      " + text.substr(at, end - at) + "\n";
      at = end + 1;
    }
  }

  void gaps(const MomentData& data) {
    if (data.gaps.empty()) return;
    line("      Largest gaps (free bytes between live blocks)");
    for (const GapData& gap : data.gaps) {
      line("        {:>12} at {:#x} in the segment of {} at {:#x}", format_size(gap.size),
           gap.address, format_size(gap.segment_size), gap.segment_address);
    }
  }

  void pins(const MomentData& data) {
    if (data.pins.empty()) return;
    line("      What pins the emptiest segments (without these blocks they could be given back)");
    for (const PinData& pin : data.pins) {
      line("        segment of {} at {:#x}: {} active keep {} from being given back",
           format_size(pin.size), pin.address, format_size(pin.active_bytes),
           format_size(pin.inactive_bytes));
      for (const BlockData& block : pin.blocks) {
        line("          block of {} at {:#x}", format_size(block.size), block.address);
        stack(block.stack, 12);
      }
    }
  }

  void top_stacks(const MomentData& data) {
    if (data.top_stacks.empty()) return;
    line("      Top stacks by allocated bytes");
    for (const StackData& entry : data.top_stacks) {
      line("        {:>12} in {} block(s){}", format_size(entry.bytes), entry.blocks,
           entry.stack.empty() ? ", no stack shown" : "");
      stack(entry.stack, 12);
    }
  }

  void stack(const std::vector<std::string>& frames, size_t indent) {
    const size_t room = std::max<size_t>(style_.width, 60) - indent;
    for (const std::string& frame : frames) {
      line("{}{}", std::string(indent, ' '), shortened(clean(frame), room));
    }
  }

  TextStyle style_;
  std::string out_;
};

}  // namespace

std::string damage_text(const DamageData& damage) {
  const std::string place = damage.offset ? fmt::format(" at byte {}", *damage.offset) : "";
  const std::string whole = damage.events_recorded
                                ? fmt::format("{} events", *damage.events_recorded)
                                : "an unknown number of events";
  return fmt::format("the trace is damaged{}, {}{} of {} could be read{}", place,
                     damage.events_read == damage.events_recorded ? "" : "only ",
                     damage.events_read, whole,
                     damage.events_read == damage.events_recorded
                         ? ""
                         : "; these are whole, what comes after the place was not read");
}

std::string render_text(const ReportData& report, const TextStyle& style) {
  return TextWriter(style).write(report);
}

}  // namespace fragscope::report
