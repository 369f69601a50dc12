#include "tools/explain_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "diagnose/explain_json.h"
#include "diagnose/finding_text.h"
#include "diagnose/trace_verdict.h"
#include "metrics/process_metrics.h"
#include "replay/event_stream.h"
#include "replay/recorded_process.h"
#include "replay/replayer.h"
#include "report/stack_lines.h"
#include "symbolize/symbolizer.h"
#include "tools/command.h"
#include "tools/json_text.h"
#include "tools/progress.h"
#include "tools/run_analysis.h"

namespace fragscope::tools {
namespace {

using diagnose::TraceFinding;
using diagnose::Trial;

constexpr size_t kMaxRefusals = 8;
constexpr size_t kReplayedPins = 4;  // of a refusal
// Settings that are tried on a fragmented run; more of them: fragscope advise.
constexpr const char* kTrials[] = {"expandable_segments:True", "max_split_size_mb:32",
                                   "max_split_size_mb:64",     "max_split_size_mb:128",
                                   "max_split_size_mb:256",    "max_split_size_mb:512"};

struct ProcessFindings {
  uint32_t pid = 0;
  std::string program;
  std::vector<std::string> limits;  // in force, in sentences
  std::vector<TraceFinding> findings;
  std::vector<Trial> trials;
  std::string no_trials;  // why there are none, where something was refused
};

bool decides(const TraceFinding& finding) { return finding.scene.kind != metrics::SceneKind::peak; }

// Replays every setting that the release accepts; nothing where the source cannot answer.
std::vector<Trial> try_settings(replay::EventStream& events, const replay::ProcessFacts& facts) {
  std::vector<Trial> trials;
  const std::string recorded = facts.property("alloc_conf").value_or("");
  Progress progress("settings", std::size(kTrials));
  for (const char* setting : kTrials) {
    replay::ReplayOptions options;
    options.alloc_conf = recorded.empty() ? setting : recorded + "," + setting;
    const auto replayed = replay::replay_process(events, facts, options);
    progress.advance(trials.size());
    if (!replayed.ok() || replayed->mode != replay::ReplayMode::what_if) continue;
    Trial trial;
    trial.settings = *options.alloc_conf;
    for (const replay::DeviceReplay& device : replayed->devices) {
      if (!device.figures) return {};
      trial.ooms += device.figures->ooms.size();
      trial.reserved_peak = std::max(trial.reserved_peak, device.figures->reserved.peak);
      trial.segment_calls += device.figures->device_mallocs + device.figures->device_frees;
    }
    trials.push_back(trial);
  }
  return trials;
}

// Why no setting was replayed for a refusal, in the words of what refused.
std::string why_no_trials(const std::vector<TraceFinding>& findings, bool fragmented) {
  const TraceFinding* last = nullptr;
  for (const TraceFinding& finding : findings) {
    if (decides(finding)) last = &finding;
  }
  if (last == nullptr) return "";
  if (fragmented) return "the recording does not tell enough to replay other settings";
  switch (last->cause) {
    case diagnose::Cause::fraction:
      return "a limit refused, and no setting of the allocator lifts it";
    case diagnose::Cause::pinned:
      return "page-locked memory was refused, which the allocator's settings do not touch";
    case diagnose::Cause::on_purpose:
      return "the failure was made on purpose";
    case diagnose::Cause::unknown:
      return "the cause is not known";
    default:
      return "live blocks and the request do not fit, however they are packed (fragscope advise "
             "compares settings up to the refusal: the request itself passes with none)";
  }
}

// Replays the recording without each of the blocks that keep most from being used, and with it
// elsewhere.
void replay_pins(replay::EventStream& events, const replay::ProcessFacts& facts,
                 std::vector<TraceFinding>& findings) {
  replay::ReadSettings reading;
  reading.with_calls = true;
  reading.with_seqs = true;
  const replay::RecordedProcess process = read_process(events, facts, reading);
  for (TraceFinding& finding : findings) {
    if (finding.cause != diagnose::Cause::stranded) continue;
    for (size_t i = 0; i < process.devices.size(); ++i) {
      if (process.devices[i].device != finding.scene.device) continue;
      for (size_t pin = 0; pin < std::min(kReplayedPins, finding.pins.size()); ++pin) {
        diagnose::PinGain& gain = finding.pins[pin];
        const uint64_t seq = gain.block.seq;
        gain.without = diagnose::replay_without(process, i, seq);
        gain.moved_first = diagnose::replay_moved(process, i, seq, diagnose::Moved::first);
        gain.moved_apart = diagnose::replay_moved(process, i, seq, diagnose::Moved::apart);
      }
    }
  }
}

// Growth from step to step, by the seq of each device's last refusal, or of its peak where nothing
// was refused: what attribute names as left behind, explain names as well.
std::map<uint64_t, diagnose::Growth> growth_at_end(replay::EventStream& events,
                                                   const metrics::ProcessMetrics& measured,
                                                   trace::TraceReader& reader,
                                                   const std::vector<metrics::Scene>& scenes) {
  std::map<int32_t, uint64_t> last;
  for (const metrics::Scene& scene : scenes) {
    if (scene.kind == metrics::SceneKind::oom) last[scene.device] = scene.seq;
  }
  for (const metrics::Scene& scene : scenes) {
    if (scene.kind == metrics::SceneKind::peak) last.emplace(scene.device, scene.seq);
  }
  std::map<uint64_t, diagnose::Growth> growth;
  if (last.empty()) return growth;
  symbolize::Symbolizer symbols(reader.tables());
  diagnose::StackRoles roles(&symbols);
  for (auto& each : diagnose::attribute(events, measured, roles, reader.tables().texts)) {
    const auto at = last.find(each.device);
    if (at != last.end()) growth.emplace(at->second, std::move(each.growth));
  }
  return growth;
}

ProcessFindings examine(const OpenRun& run, trace::TraceReader& reader) {
  reader.load_tables();
  const replay::ProcessFacts facts = process_facts(run, reader);
  ProcessEvents sized(reader, facts);
  replay::EventStream& events = sized.stream();
  const metrics::ProcessMetrics measured = metrics::measure_process(events, facts);
  ProcessFindings result{
      facts.pid, facts.program, replay::limits_in_force(facts.properties), {}, {}, {}};
  bool fragmented = false;
  const auto scenes = metrics::scenes_of(events, measured, kMaxRefusals);
  const auto growth = growth_at_end(events, measured, reader, scenes);
  for (const metrics::Scene& scene : scenes) {
    const auto grown = growth.find(scene.seq);
    result.findings.push_back(diagnose::judge(scene, facts, measured.source,
                                              grown == growth.end() ? nullptr : &grown->second));
    const auto cause = result.findings.back().cause;
    fragmented =
        fragmented || cause == diagnose::Cause::stranded || cause == diagnose::Cause::missed_retry;
  }
  if (fragmented) {
    result.trials = try_settings(events, facts);
    replay_pins(events, facts, result.findings);
  }
  if (result.trials.empty()) result.no_trials = why_no_trials(result.findings, fragmented);
  for (TraceFinding& finding : result.findings) {
    diagnose::adapt_actions(result.trials, finding);
  }
  return result;
}

Json split_json(const diagnose::MemorySplit& split) {
  return {{"total_bytes", or_null(split.total)},
          {"live_bytes", split.live},
          {"pending_bytes", split.pending},
          {"split_rest_bytes", split.split_rests},
          {"other_stream_bytes", split.other_stream},
          {"other_pool_bytes", split.other_pool},
          {"private_pool_bytes", split.private_pool},
          {"expandable_free_bytes", split.expandable},
          {"idle_segment_bytes", split.idle},
          {"outside_bytes", or_null(split.outside)},
          {"context_bytes", or_null(split.context)},
          {"elsewhere_bytes", or_null(split.elsewhere)},
          {"device_free_bytes", or_null(split.device_free)}};
}

const char* kind_name(metrics::SceneKind kind) {
  constexpr const char* kNames[] = {"oom", "refused", "pinned_refused", "peak"};
  return kNames[static_cast<size_t>(kind)];
}

Json replay_json(const std::optional<diagnose::BlockReplay>& replayed) {
  if (!replayed) return nullptr;
  return {{"ooms", replayed->ooms}, {"reserved_peak_bytes", replayed->reserved_peak}};
}

Json finding_json(const TraceFinding& finding, const diagnose::StackLines& stack_lines) {
  Json out = {{"moment", kind_name(finding.scene.kind)},
              {"seq", finding.scene.seq},
              {"t_ns", finding.scene.time_ns},
              {"device", finding.scene.device},
              {"requested_bytes", or_null(finding.scene.requested)},
              {"stack", stack_lines(finding.scene.stack, finding.scene.seq)}};
  out.update(Json::parse(explanation_json(finding.figures, finding.explanation)));
  if (!decides(finding)) out["verdict"] = nullptr;
  out["cause"] = diagnose::cause_name(finding.cause);
  out["stranded_in"] =
      finding.stranded_in ? Json(stranded_name(*finding.stranded_in)) : Json(nullptr);
  out["bytes"] = split_json(finding.split);
  out["pins"] = Json::array();
  for (const diagnose::PinGain& pin : finding.pins) {
    out["pins"].push_back({{"address", pin.block.address},
                           {"size", pin.block.size},
                           {"gap_bytes", pin.gap},
                           {"releasable_bytes", pin.releasable},
                           {"without", replay_json(pin.without)},
                           {"moved_first", replay_json(pin.moved_first)},
                           {"moved_apart", replay_json(pin.moved_apart)},
                           {"stack", stack_lines(pin.block.stack, pin.block.seq)}});
  }
  out["leak_suspects"] = Json::array();
  for (const diagnose::LeakSuspect& leak : finding.leaks) {
    out["leak_suspects"].push_back(
        {{"bytes", leak.bytes},
         {"blocks", leak.blocks},
         {"windows", leak.steps > 0 ? Json(nullptr) : Json(leak.windows)},
         {"steps", leak.steps > 0 ? Json(leak.steps) : Json(nullptr)},
         {"stack", stack_lines(leak.stack, finding.scene.seq)}});
  }
  return out;
}

Json trials_json(const std::vector<Trial>& trials) {
  Json out = Json::array();
  for (const Trial& trial : trials) {
    out.push_back({{"alloc_conf", trial.settings},
                   {"ooms", trial.ooms},
                   {"reserved_peak_bytes", trial.reserved_peak},
                   {"segment_calls", trial.segment_calls}});
  }
  return out;
}

// JSON has whole stacks; text folds what belongs to a framework.
diagnose::StackLines lines_by(symbolize::Symbolizer& symbols, bool json) {
  constexpr size_t kAll = 1000;
  report::StackStyle style;
  if (json) style = {kAll, false};
  return [lines = report::StackLines(&symbols, style)](uint32_t stack, uint64_t seq) {
    return lines.lines(stack, seq);
  };
}

// What is shown of a process: its refusals, or without any its peaks.
std::vector<const TraceFinding*> shown(const ProcessFindings& process) {
  std::vector<const TraceFinding*> list;
  for (const TraceFinding& finding : process.findings) {
    if (decides(finding)) list.push_back(&finding);
  }
  if (!list.empty()) return list;
  for (const TraceFinding& finding : process.findings) list.push_back(&finding);
  return list;
}

std::string text_of(const ProcessFindings& process, const diagnose::StackLines& stack_lines) {
  std::string out =
      fmt::format("process {} {}\n", pid_text(process.pid), one_line(process.program));
  for (const std::string& limit : process.limits) out += "note: " + one_line(limit) + "\n";
  const auto list = shown(process);
  if (list.empty() || !decides(*list.front())) out += "no request was refused\n";
  for (const TraceFinding* finding : list) {
    out += "\n" + finding_text(*finding,
                               finding == list.front() ? process.trials : std::vector<Trial>{},
                               stack_lines);
  }
  if (!process.no_trials.empty()) {
    out += "\nno other setting was replayed: " + process.no_trials + "\n";
  }
  return out;
}

Json process_json(const ProcessFindings& process, const diagnose::StackLines& stack_lines) {
  Json out = {{"pid", process.pid == 0 ? Json(nullptr) : Json(process.pid)},
              {"program", process.program},
              {"limits", process.limits},
              {"moments", Json::array()}};
  for (const TraceFinding& finding : process.findings) {
    out["moments"].push_back(finding_json(finding, stack_lines));
  }
  out["trials"] = trials_json(process.trials);
  out["no_trials"] = process.no_trials.empty() ? Json(nullptr) : Json(process.no_trials);
  return out;
}

// The keys of a message's explanation at the top: those of the run's last refusal.
Json document(Json processes, const std::vector<std::string>& warnings) {
  Json decisive = {{"verdict", nullptr},      {"alternatives", Json::array()},
                   {"fields", nullptr},       {"derived", nullptr},
                   {"confidence", nullptr},   {"why", "no request was refused in this run"},
                   {"actions", Json::array()}};
  uint64_t latest = 0;
  for (const Json& process : processes) {
    for (const Json& moment : process["moments"]) {
      if (moment["moment"] == "peak" || moment["t_ns"].get<uint64_t>() < latest) continue;
      latest = moment["t_ns"].get<uint64_t>();
      for (auto& [key, value] : decisive.items()) value = moment[key];
      decisive["cause"] = moment["cause"];
      decisive["stranded_in"] = moment["stranded_in"];
      decisive["bytes"] = moment["bytes"];
    }
  }
  decisive["schema"] = 1;
  decisive["processes"] = std::move(processes);
  decisive["warnings"] = warnings;
  return decisive;
}

}  // namespace

bool is_recorded_run(const std::string& path) {
  std::error_code failed;
  if (std::filesystem::is_directory(path, failed)) return true;
  std::ifstream file(path, std::ios::binary);
  std::string start(4096, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  if (start.starts_with("FSTRC\r\n") || start.starts_with("FSLOG\r\n")) return true;
  if (start.size() > 1 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5) return true;
  size_t line = 0;  // a text trace: its first line that is no comment names the process
  while (line < start.size() && (start[line] == '#' || start[line] == '\n')) {
    line = start.find('\n', line);
    line = line == std::string::npos ? start.size() : line + 1;
  }
  return start.compare(line, 12, "process pid=") == 0;
}

int explain_run(const std::string& path, bool json) {
  auto run = open_run(path);
  if (!run.ok()) return fail(run.error());
  std::string text;
  Json processes = Json::array();
  uint64_t events = 0;
  for (trace::TraceReader& reader : run->processes) {
    const ProcessFindings process = examine(*run, reader);
    symbolize::Symbolizer symbols(reader.tables());
    const diagnose::StackLines stack_lines = lines_by(symbols, json);
    if (json) {
      processes.push_back(process_json(process, stack_lines));
    } else {
      text += (text.empty() ? "" : "\n") + text_of(process, stack_lines);
    }
    events += reader.process().event_count;
  }
  const int code = reading_exit_code(*run, events);
  if (json) {
    text = document_text(document(std::move(processes), all_warnings(*run)));
  }
  const int written = print_output(text);
  if (written != kExitOk) return written;
  if (code != kExitNothingRecorded) return code;
  return fail(fmt::format("{}: no events were recorded", path), kExitNothingRecorded);
}

}  // namespace fragscope::tools
