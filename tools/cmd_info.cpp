// fragscope info: what is in a run, and how it ended.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/bytes.h"
#include "replay/process_facts.h"
#include "replay/process_rules.h"
#include "report/host_memory.h"
#include "report/text_report.h"
#include "tools/command.h"
#include "tools/json_text.h"
#include "tools/run_facts.h"

namespace fragscope::tools {
namespace {

struct InfoOptions {
  std::string path;
  bool json = false;
};

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

void line(std::string_view key, std::string_view value) {
  fmt::print("{:<14}{}\n", key, one_line(value));
}
void item(std::string_view key, std::string_view value) {
  fmt::print("  {:<14}{}\n", key, one_line(value));
}

std::string property_or(const trace::ProcessInfo& process, const std::string& key,
                        const std::string& otherwise) {
  const auto found = process.properties.find(key);
  return found == process.properties.end() ? otherwise : found->second;
}

std::string device_text(const DeviceFact& device) {
  return fmt::format("{}: {}, {}{}", device.index, device.name.value_or("name unknown"),
                     device.total_bytes ? format_size(*device.total_bytes) : "size unknown",
                     device.simulated.value_or(false) ? ", simulated" : "") +
         (device.card_bytes
              ? fmt::format(" (capped; the card has {})", format_size(*device.card_bytes))
              : "");
}

std::string stacks_text(const trace::ProcessInfo& process) {
  const std::string kinds = property_or(process, "stacks", "unknown");
  const std::string least = property_or(process, "stacks.min_bytes", "");
  return least.empty() ? kinds : kinds + ", of memory from " + least + " bytes on";
}

// What of the allocator's settings was imposed on this process, and by whom.
std::string enforced_text(const RunFacts& run, const trace::ProcessInfo& process) {
  const std::string by_shim = property_or(process, "enforce", "unknown");
  if (!run.info || by_shim == "shim" || by_shim == "pluggable") return by_shim;
  const auto& notes = run.info->notes;
  const auto way = notes.find("enforce");
  const auto settings = notes.find("alloc_conf");
  const bool native = by_shim == "native" || (way != notes.end() && way->second == "native");
  if (!native || settings == notes.end()) return by_shim;
  const std::string source = property_or(process, "block_source", "none");
  const bool torch = process.properties.contains("torch_version") || by_shim == "native" ||
                     source == "adaptor" || source == "report";
  if (!torch)
    return by_shim + "; no PyTorch in this process: " + settings->second + " not in force";
  const std::string own = property_or(process, "alloc_conf", settings->second);
  if (own != settings->second) {
    return "not as asked (" + settings->second + "): the program has set PyTorch's variable to " +
           (own.empty() ? "nothing" : own);
  }
  return "natively, by PyTorch's own variable when its allocator began: " + settings->second;
}

// Behind the name of a plan that is followed.
std::string followed_text(const trace::ProcessInfo& process) {
  const std::string offered = property_or(process, "enforce_plan.offered", "");
  if (offered.empty()) {
    return " is followed; how many requests got their place is told at the exit of a process that "
           "is served by the shim";
  }
  return ": " + property_or(process, "enforce_plan.placed", "0") + " of " + offered +
         " requests got their place";
}

// `fragscope ctl set`, in the order of the requests.
struct SettingsChange {
  uint64_t number = 0;
  std::string settings;
  std::optional<uint64_t> seq;  // its event; absent: not in the trace
};
std::vector<SettingsChange> changes_of(const ProcessFacts& facts) {
  std::vector<SettingsChange> changes;
  for (auto& [number, settings] : replay::settings_changes(facts.process.properties)) {
    const auto at = facts.changed_at.find(number);
    changes.push_back({number, settings, std::nullopt});
    if (at != facts.changed_at.end()) changes.back().seq = at->second;
  }
  return changes;
}

std::string change_text(const SettingsChange& change) {
  return "changed while it ran to " + change.settings +
         (change.seq ? fmt::format(" from event {} on", *change.seq)
                     : std::string(" at a moment that the trace does not have"));
}

// A process nobody waited for may still have told that it got as far as its exit handlers.
std::string process_end_text(const ProcessFacts& facts) {
  const std::string text = exit_text(facts.exit);
  const bool told = facts.exit.kind != trace::ExitKind::vanished;
  if (told || property_or(facts.process, "log.finished", "0") != "1") return text;
  return text + "; it ran its exit handlers";
}

std::string kinds_text(const std::map<std::string, uint64_t>& kinds) {
  std::vector<std::string> parts;
  for (const auto& [kind, count] : kinds) parts.push_back(fmt::format("{} {}", kind, count));
  return joined(parts);
}

// "4711 missing before the first event, 12 missing after event 90000"
std::string gaps_text(std::string_view gaps) {
  std::vector<std::string> parts;
  while (!gaps.empty()) {
    const size_t end = std::min(gaps.find(' '), gaps.size());
    const std::string_view gap = gaps.substr(0, end);
    gaps.remove_prefix(std::min(end + 1, gaps.size()));
    const size_t colon = gap.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view after = gap.substr(0, colon);
    parts.push_back(fmt::format("{} missing {}", gap.substr(colon + 1),
                                after == "0" ? std::string("before the first event")
                                             : fmt::format("after event {}", after)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool may_refuse(const trace::ProcessInfo& process) {
  return process.properties.contains("limit.memory_bytes") ||
         process.properties.contains("limit.pinned_bytes") ||
         process.properties.contains("limit.oom_at") ||
         process.properties.contains("limit.fail_rate");
}

void print_process(const RunFacts& run, const ProcessFacts& facts) {
  const trace::ProcessInfo& process = facts.process;
  const std::string here = property_or(process, "host_pid", "");
  const std::string pid = process.pid == 0 ? "(pid unknown)"
                          : here.empty()   ? std::to_string(process.pid)
                                           : fmt::format("{} ({} on the host)", process.pid, here);
  fmt::print("\nprocess {} {}\n", pid, one_line(process.program));
  item("ended", process_end_text(facts));
  item("events", fmt::format("{}{}, {} dropped, {} torn", facts.events, facts.damage ? " read" : "",
                             process.dropped_events, process.torn_records));
  for (const auto& [key, text] :
       {std::pair("log.overwritten_events", "overwritten by newer ones in the ring (--ring)"),
        std::pair("trace.unwritten_events", "not written: the traces reached --max-trace"),
        std::pair("log.skipped_events", "not recorded while recording was paused")}) {
    const std::string count = property_or(process, key, "0");
    if (count != "0") item("", count + " events " + text);
  }
  const std::string gaps = property_or(process, "log.gaps", "");
  if (!gaps.empty()) item("", gaps_text(gaps));
  if (facts.damage) item("damage", report::damage_text(*facts.damage));
  if (!facts.kinds.empty()) item("", kinds_text(facts.kinds));
  item("blocks from", property_or(process, "block_source", "unknown"));
  item("torch", property_or(process, "torch_version", "unknown"));
  item("stacks", stacks_text(process));
  item("enforced", enforced_text(run, process));
  const std::string plan = property_or(process, "enforce_plan", "");
  if (!plan.empty()) item("plan", plan + followed_text(process));
  for (const SettingsChange& change : changes_of(facts)) item("", change_text(change));
  for (const std::string& limit : replay::limits_in_force(process.properties)) item("limit", limit);
  if (may_refuse(process)) item("", fmt::format("{} calls were refused", facts.refused));
  for (const DeviceFact& device : facts.devices) item("device", device_text(device));
  for (const std::string& path : facts.cuda_runtimes) item("CUDA runtime", path);
  item("hooked", property_or(process, "coverage.hooked", "unknown") + " resolver requests");
  for (const auto& [symbol, count] : facts.unhooked) {
    item("not hooked", fmt::format("{} ({} requests)", symbol, count));
  }
  if (!process.sealed) item("trace", "not sealed");
}

std::string state_text(const RunFacts& facts) {
  if (!facts.info) return "no run.json: a single trace, or recorded by a plain preload";
  if (facts.info->sealed) return "complete";
  if (facts.live) return "live";
  // A recorder that saw the command's end was there until then.
  using trace::ExitKind;
  const ExitKind told = facts.info->exit.kind;
  if (told == ExitKind::exited || told == ExitKind::signaled) {
    return "not complete: the recorder could not write all of it, or a process outlived it; the "
           "rest "
           "was read from the logs";
  }
  return "its recorder was killed; what follows was read from the logs";
}

void print_text(const RunFacts& facts) {
  line("run", facts.path);
  if (facts.info) {
    const trace::RunInfo& info = *facts.info;
    line("command", info.command.empty() ? "unknown" : joined(info.command));
    line("started", (info.start_time.empty() ? "unknown" : info.start_time) + " on " +
                        (info.host.empty() ? "an unknown host" : info.host));
    line("GPU", info.gpu.empty() ? "the machine's own" : info.gpu + " (simulated)");
    line("state", state_text(facts));
    line("command ended", exit_text(info.exit));
    line("recorded by", "fragscope " + info.fragscope_version);
    for (const auto& [key, value] : info.notes) line("note", key + ": " + value);
  }
  if (facts.host_memory) {
    constexpr size_t kMostProcesses = 10;
    const char* key = "host memory";
    for (const std::string& text : report::host_memory_lines(*facts.host_memory, kMostProcesses)) {
      line(key, text);
      key = "";
    }
  }
  line("processes", std::to_string(facts.processes.size()));
  for (const ProcessFacts& process : facts.processes) print_process(facts, process);
}

Json exit_json(trace::ProcessExit exit) {
  switch (exit.kind) {
    case trace::ExitKind::exited:
      return {{"kind", "exited"}, {"code", exit.code}};
    case trace::ExitKind::signaled:
      return {{"kind", "signaled"}, {"code", exit.code}};
    case trace::ExitKind::vanished:
      return {{"kind", "vanished"}, {"code", nullptr}};
    case trace::ExitKind::running:
      break;
  }
  return {{"kind", "running"}, {"code", nullptr}};
}

Json damage_json(const std::optional<report::DamageData>& damage) {
  if (!damage) return nullptr;
  return {{"text", damage->text},
          {"offset", or_null(damage->offset)},
          {"events_read", damage->events_read},
          {"events_recorded", or_null(damage->events_recorded)}};
}

Json process_json(const ProcessFacts& facts) {
  const trace::ProcessInfo& process = facts.process;
  Json devices = Json::array();
  for (const DeviceFact& device : facts.devices) {
    devices.push_back({{"index", device.index},
                       {"name", or_null(device.name)},
                       {"simulated", or_null(device.simulated)},
                       {"total_bytes", or_null(device.total_bytes)}});
    if (device.card_bytes) devices.back()["card_bytes"] = *device.card_bytes;
  }
  Json changes = Json::array();
  for (const SettingsChange& change : changes_of(facts)) {
    changes.push_back({{"settings", change.settings}, {"seq", or_null(change.seq)}});
  }
  return {{"pid", process.pid == 0 ? Json(nullptr) : Json(process.pid)},
          {"start_ticks", process.start_ticks},
          {"program", process.program},
          {"exit", exit_json(facts.exit)},
          {"sealed", process.sealed},
          {"events", facts.events},
          {"dropped_events", process.dropped_events},
          {"torn_records", process.torn_records},
          {"kinds", facts.kinds},
          {"devices", devices},
          {"unhooked", facts.unhooked},
          {"properties", process.properties},
          {"settings_changes", changes},
          {"damage", damage_json(facts.damage)}};
}

void print_json(const RunFacts& facts) {
  Json run = {{"path", facts.path}};
  if (facts.info) {
    const trace::RunInfo& info = *facts.info;
    run.update({{"command", info.command},
                {"start_time", info.start_time},
                {"host", info.host},
                {"gpu", info.gpu.empty() ? Json(nullptr) : Json(info.gpu)},
                {"sealed", info.sealed},
                {"live", facts.live},
                {"exit", exit_json(info.exit)},
                {"fragscope_version", info.fragscope_version},
                {"notes", info.notes}});
  }
  Json processes = Json::array();
  for (const ProcessFacts& process : facts.processes) processes.push_back(process_json(process));
  const Json all = {{"schema", 1},
                    {"run", run},
                    {"processes", processes},
                    {"host_memory", facts.host_memory ? report::host_memory_json(*facts.host_memory)
                                                      : Json(nullptr)},
                    {"warnings", facts.warnings}};
  fmt::print("{}", document_text(all));
}

int info(const InfoOptions& options) {
  auto run = open_run(options.path);
  if (!run.ok()) return fail(run.error());
  const RunFacts facts = gather_facts(*run);
  if (options.json) {
    print_json(facts);
  } else {
    print_text(facts);
  }
  uint64_t events = 0;
  for (const ProcessFacts& process : facts.processes) events += process.events;
  const int code = reading_exit_code(*run, events);
  if (code != kExitNothingRecorded) return code;
  return fail(fmt::format("{}: no events were recorded", options.path), kExitNothingRecorded);
}

}  // namespace

void add_info_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("info", "Tell what is in a run and how it ended");
  const auto options = std::make_shared<InfoOptions>();
  command
      ->add_option("RUN", options->path,
                   "Run directory, trace file, text trace or PyTorch snapshot")
      ->required();
  command->add_flag("--json", options->json, "As JSON");
  command->callback([options, &context] { context.exit_code = info(*options); });
}

}  // namespace fragscope::tools
