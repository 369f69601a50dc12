#include "tools/run_analysis.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "capture/process_state.h"
#include "replay/release_search.h"
#include "tools/command.h"
#include "tools/host_memory_data.h"
#include "tools/nothing_recorded.h"
#include "tools/simulation.h"

namespace fragscope::tools {
namespace {

report::ExitData exit_data(const trace::ProcessExit& exit) {
  report::ExitData data;
  data.kind = replay::exit_kind_name(exit.kind);
  if (exit.kind == trace::ExitKind::exited || exit.kind == trace::ExitKind::signaled) {
    data.code = exit.code;
  }
  return data;
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view text(value);
    return text.find("UTF-8") != text.npos || text.find("utf8") != text.npos;
  }
  return false;
}

void take_note(const OpenRun& run, const char* note, const char* property,
               replay::ProcessFacts& facts) {
  const auto found = run.info->notes.find(note);
  if (found != run.info->notes.end()) facts.properties.emplace(property, found->second);
}

std::optional<uint64_t> bytes_note(const trace::RunInfo& info, const char* key) {
  const auto note = info.notes.find(key);
  uint64_t bytes = 0;
  if (note == info.notes.end()) return std::nullopt;
  const char* const end = note->second.data() + note->second.size();
  const auto [stop, failed] = std::from_chars(note->second.data(), end, bytes);
  return failed == std::errc() && stop == end ? std::optional(bytes) : std::nullopt;
}

// What `fragscope run` took for a context on each simulated device.
void take_context_bytes(const trace::RunInfo& info, replay::ProcessFacts& facts) {
  const auto note = info.notes.find("simulation.context_bytes");
  if (note == info.notes.end()) return;
  constexpr std::string_view kTotal = ".total_bytes";
  std::map<std::string, std::string> more;
  for (const auto& [key, value] : facts.properties) {
    if (!key.starts_with("device.") || !key.ends_with(kTotal)) continue;
    more[key.substr(0, key.size() - kTotal.size()) + ".context_bytes"] = note->second;
  }
  facts.properties.merge(more);
}

}  // namespace

report::RunData run_data(const OpenRun& run) {
  report::RunData data;
  data.path = run.path;
  data.host_memory = host_memory_data(run);
  if (!run.info) return data;
  const trace::RunInfo& info = *run.info;
  data.fragscope_version = info.fragscope_version;
  data.command = info.command;
  data.start_time = info.start_time;
  data.host = info.host;
  if (!info.gpu.empty()) data.gpu = info.gpu;
  constexpr std::string_view kPrefix = "simulation.";
  for (const auto& [key, text] : info.notes) {
    if (key.starts_with(kPrefix)) data.simulation[key.substr(kPrefix.size())] = text;
  }
  data.workspace_bytes = bytes_note(info, kWorkspaceNote);
  data.workspace_room_bytes = bytes_note(info, kWorkspaceRoomNote);
  data.sealed = info.sealed;
  data.exit = exit_data(info.exit);
  if (run.processes.empty()) data.nothing_recorded = why_nothing_recorded(info.notes, info.command);
  return data;
}

void set_reserved_ranges(const report::RunData& run, report::ProcessData& process) {
  if (!run.workspace_room_bytes) return;
  for (report::DeviceData& device : process.devices) {
    const auto reserved = device.reserved_bytes.peak, allocated = device.allocated_bytes.peak;
    if (!reserved || !allocated || *reserved == 0) continue;
    const uint64_t without = *allocated - std::min(*allocated, run.workspace_bytes.value_or(0));
    const uint64_t card = device.total_bytes.value_or(UINT64_MAX);
    const uint64_t most = *reserved + *run.workspace_room_bytes;
    device.reserved_peak_range = {without, std::max(*reserved, std::min(most, card))};
  }
}

trace::ProcessExit exit_of(const OpenRun& run, const trace::ProcessInfo& process) {
  trace::ProcessExit exit = process.exit;
  const auto told = [](const trace::ProcessExit& what) {
    return what.kind == trace::ExitKind::exited || what.kind == trace::ExitKind::signaled;
  };
  if (run.info && !told(exit)) {
    for (const trace::RunProcess& known : run.info->processes) {
      const bool same = known.pid == process.pid && known.start_ticks == process.start_ticks;
      if (same && known.exit.kind != trace::ExitKind::running) exit = known.exit;
    }
  }
  const bool gone = exit.kind == trace::ExitKind::running &&
                    !capture::process_is_alive(process.pid, process.start_ticks);
  if (gone) exit = {trace::ExitKind::vanished, 0};
  return exit;
}

replay::ProcessFacts process_facts(const OpenRun& run, trace::TraceReader& reader) {
  replay::ProcessFacts facts = replay::facts_of(reader.process(), &reader.tables());
  facts.exit = exit_of(run, reader.process());
  if (facts.block_source == replay::BlockSource::snapshot) {
    replay::TraceStream events(reader);
    replay::settle_release(events, facts);
  }
  if (!run.info) return facts;
  take_context_bytes(*run.info, facts);
  // The policy of --enforce=shim is the newest release's, whatever torch the command has.
  const bool policy = facts.property("enforce") == "shim";
  if (!policy) take_note(run, "torch", "torch_version", facts);
  const auto enforced = run.info->notes.find("enforce");
  const std::string way = enforced == run.info->notes.end() ? "" : enforced->second;
  const bool pluggable = facts.property("enforce") == "pluggable";  // has told its settings itself
  const bool by_this_way = way == "auto" || way == (policy ? "shim" : "native");
  if (by_this_way && !pluggable) take_note(run, "alloc_conf", "alloc_conf", facts);
  return facts;
}

void measure_run(OpenRun& run, const std::function<void(MeasuredProcess&&)>& take) {
  for (trace::TraceReader& reader : run.processes) {
    reader.load_tables();
    const replay::ProcessFacts facts = process_facts(run, reader);
    ProcessEvents events(reader, facts);
    take({reader, facts, events.stream(), metrics::measure_process(events.stream(), facts)});
  }
}

std::vector<std::string> gaps_of(const trace::TraceReader& reader) {
  std::vector<std::string> gaps;
  if (reader.damage()) gaps.push_back(reader.damage()->text);
  for (const std::string& line : losses_of(reader.process())) gaps.push_back(line);
  return gaps;
}

std::optional<report::DamageData> damage_of(const trace::TraceReader& reader,
                                            uint64_t events_read) {
  if (!reader.damage()) return std::nullopt;
  report::DamageData data{reader.damage()->text, reader.damage()->offset, events_read,
                          std::nullopt};
  if (reader.process().sealed) data.events_recorded = reader.process().event_count;
  return data;
}

report::TextStyle output_style() {
  report::TextStyle style;
  style.utf8 = locale_is_utf8();
  if (isatty(STDOUT_FILENO) == 0) return style;
  style.color = std::getenv("NO_COLOR") == nullptr;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) style.width = size.ws_col;
  return style;
}

std::string pid_text(uint32_t pid) {
  return pid == 0 ? std::string("(pid unknown)") : std::to_string(pid);
}

int print_output(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) return fail("cannot write the answer", kExitOutput);
  return kExitOk;
}

}  // namespace fragscope::tools
