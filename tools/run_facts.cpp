#include "tools/run_facts.h"

#include <fmt/format.h>
#include <string.h>

#include <charconv>

#include "event/event_names.h"
#include "tools/host_memory_data.h"
#include "tools/progress.h"
#include "tools/run_analysis.h"

namespace fragscope::tools {
namespace {

std::optional<std::string> property(const trace::ProcessInfo& process, const std::string& key) {
  const auto found = process.properties.find(key);
  if (found == process.properties.end()) return std::nullopt;
  return found->second;
}

std::optional<uint64_t> number(const std::optional<std::string>& text) {
  uint64_t value = 0;
  if (!text) return std::nullopt;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

// Devices are numbered from 0 without gaps that matter: the keys are sorted as text, so the numbers
// are collected first.
std::vector<DeviceFact> devices_of(const trace::ProcessInfo& process) {
  constexpr std::string_view kPrefix = "device.";
  std::map<int, DeviceFact> devices;
  for (const auto& [key, value] : process.properties) {
    if (!key.starts_with(kPrefix)) continue;
    int index = 0;
    const char* start = key.data() + kPrefix.size();
    const auto parsed = std::from_chars(start, key.data() + key.size(), index);
    if (parsed.ec != std::errc()) continue;
    devices[index].index = index;
  }
  std::vector<DeviceFact> list;
  for (auto& [index, device] : devices) {
    const std::string base = fmt::format("device.{}.", index);
    device.name = property(process, base + "name");
    device.total_bytes = number(property(process, base + "total_bytes"));
    device.card_bytes = number(property(process, base + "card_bytes"));
    const auto simulated = property(process, base + "simulated");
    if (simulated) device.simulated = *simulated == "1";
    list.push_back(device);
  }
  return list;
}

void collect_properties(const trace::ProcessInfo& process, ProcessFacts& facts) {
  constexpr std::string_view kUnhooked = "coverage.unhooked.";
  facts.devices = devices_of(process);
  for (const auto& [key, value] : process.properties) {
    if (key.starts_with("cudart.")) facts.cuda_runtimes.push_back(value);
    if (key.starts_with("cudart_static.")) facts.cuda_runtimes.push_back("inside " + value);
    if (key.starts_with(kUnhooked)) {
      facts.unhooked[key.substr(kUnhooked.size())] = number(value).value_or(0);
    }
  }
}

void count_events(trace::TraceReader& reader, ProcessFacts& facts) {
  std::map<EventKind, uint64_t> counts;
  Progress progress("events", reader.process().event_count);
  reader.rewind();
  for (Event event; reader.next(event); ++facts.events) {
    ++counts[event.kind];
    if ((event.flags & kFlagRefused) != 0) ++facts.refused;
    if (event.kind == EventKind::mark && (event.flags & kFlagSettings) != 0) {
      facts.changed_at[event.aux] = event.seq;
    }
    progress.advance(facts.events);
  }
  for (const auto& [kind, count] : counts) facts.kinds[std::string(kind_name(kind))] = count;
}

}  // namespace

RunFacts gather_facts(OpenRun& run) {
  RunFacts facts;
  facts.path = run.path;
  facts.info = run.info;
  for (trace::TraceReader& reader : run.processes) {
    ProcessFacts process;
    count_events(reader, process);
    process.process = reader.process();
    process.exit = exit_of(run, reader.process());
    collect_properties(reader.process(), process);
    process.damage = damage_of(reader, process.events);
    // A trace that was put together from logs while its process lives says "running".
    if (process.exit.kind == trace::ExitKind::running) {
      process.process.sealed = false;
      facts.live = true;
    }
    facts.processes.push_back(std::move(process));
  }
  facts.host_memory = host_memory_data(run);
  facts.warnings = all_warnings(run);
  const bool told = !facts.info || facts.info->sealed || facts.live;
  // The recorder was killed before it saw the command's end.
  if (!told && facts.info->exit.kind == trace::ExitKind::running) {
    facts.info->exit = {trace::ExitKind::vanished, 0};
  }
  return facts;
}

std::string exit_text(trace::ProcessExit exit) {
  switch (exit.kind) {
    case trace::ExitKind::exited:
      return fmt::format("exited {}", exit.code);
    case trace::ExitKind::signaled: {
      const char* name = ::sigabbrev_np(exit.code);
      return name != nullptr ? fmt::format("signaled {} (SIG{})", exit.code, name)
                             : fmt::format("signaled {}", exit.code);
    }
    case trace::ExitKind::vanished:
      return "vanished (nobody saw how it ended)";
    case trace::ExitKind::running:
      return "running";
  }
  return "?";
}

}  // namespace fragscope::tools
