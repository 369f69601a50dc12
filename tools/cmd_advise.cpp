// fragscope advise: the best allocator settings for a recorded run, found by exact replay.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>

#include "base/bytes.h"
#include "diagnose/advice.h"
#include "diagnose/advice_text.h"
#include "diagnose/attribution.h"
#include "diagnose/data_loading.h"
#include "diagnose/memory_remedies.h"
#include "metrics/process_metrics.h"
#include "replay/event_stream.h"
#include "simcuda/sim_config.h"
#include "symbolize/symbolizer.h"
#include "tools/command.h"
#include "tools/data_loading_facts.h"
#include "tools/json_text.h"
#include "tools/progress.h"
#include "tools/run_analysis.h"

namespace fragscope::tools {
namespace {

using diagnose::Advice;
using diagnose::AdviceSettings;
using diagnose::Objective;
using diagnose::TriedSettings;

struct AdviseOptions {
  std::string path;
  std::string objective = "peak";
  uint32_t pid = 0;  // 0: all
  bool json = false;
  bool data_loading = false;
  uint64_t cores = 0;  // 0: this machine's
};

Result<AdviceSettings> parse_objective(const std::string& text) {
  AdviceSettings settings;
  if (text == "peak") return settings;
  if (text == "mallocs") {
    settings.objective = Objective::mallocs;
    return settings;
  }
  if (!text.starts_with("fits=")) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--objective: '{}' is none of peak, mallocs, fits=SIZE", text)};
  }
  const auto bytes = parse_size(text.substr(5));
  if (!bytes.ok()) {
    return Error{ErrorCode::kInvalidArgument, "--objective: " + bytes.error().text};
  }
  settings.objective = Objective::fits;
  settings.device_bytes = *bytes;
  return settings;
}

// One device of one process, or why it has no advice.
struct Advised {
  replay::ProcessFacts facts;
  std::string torch_version;
  std::string variable;  // that the release reads its settings from
  int32_t device = 0;
  std::optional<uint64_t> capacity;
  std::string undecidable;
  std::vector<std::string> notes;
  std::optional<Advice> advice;
  std::optional<diagnose::Attribution> attribution;  // absent: no blocks were recorded
};

// By device.
std::map<int32_t, diagnose::Attribution> attributions(trace::TraceReader& reader,
                                                      const replay::ProcessFacts& facts) {
  reader.load_tables();
  ProcessEvents events(reader, facts);
  const metrics::ProcessMetrics measured = metrics::measure_process(events.stream(), facts);
  symbolize::Symbolizer symbols(reader.tables());
  diagnose::StackRoles roles(&symbols);
  std::map<int32_t, diagnose::Attribution> by_device;
  for (auto& each : diagnose::attribute(events.stream(), measured, roles, reader.tables().texts)) {
    by_device.emplace(each.device, std::move(each));
  }
  return by_device;
}

// The smallest known cards on which the run fits with the advised settings: what the allocator
// reserves and the context; what libraries take beside them is not in it.
std::vector<const simcuda::GpuPreset*> cards_for(const Advice& advice) {
  constexpr size_t kCards = 3;
  std::vector<const simcuda::GpuPreset*> cards;
  for (const simcuda::GpuPreset& gpu : simcuda::gpu_presets()) {
    const uint64_t context = std::min(gpu.total_bytes, gpu.context_bytes);
    if (gpu.total_bytes - context >= advice.unlimited_peak) cards.push_back(&gpu);
  }
  std::stable_sort(cards.begin(), cards.end(), [](const auto* left, const auto* right) {
    return left->total_bytes < right->total_bytes;
  });
  if (cards.size() > kCards) cards.resize(kCards);
  return cards;
}

void advise_process(const OpenRun& run, trace::TraceReader& reader, const AdviceSettings& settings,
                    std::vector<Advised>& all) {
  Advised base;
  base.facts = process_facts(run, reader);
  ProcessEvents events(reader, base.facts);
  replay::ReadSettings reading;
  reading.with_calls = true;
  reading.with_seqs = true;
  reading.device_memory = settings.device_bytes;
  const replay::RecordedProcess process = read_process(events.stream(), base.facts, reading);
  base.torch_version = process.rules.profile.name;
  base.variable =
      process.rules.profile.has_generic_variable ? "PYTORCH_ALLOC_CONF" : "PYTORCH_CUDA_ALLOC_CONF";
  base.notes = process.assumptions;
  if (!process.modelled) base.undecidable = process.undecidable;
  auto attributed = attributions(reader, base.facts);
  for (size_t i = 0; i < process.devices.size(); ++i) {
    if (process.devices[i].calls.calls.empty()) continue;
    Advised advised = base;
    advised.device = process.devices[i].device;
    AdviceSettings own = settings;
    // What a run had of the device, libraries and context taken off, or what is asked for.
    if (settings.device_bytes) own.device_bytes = process.devices[i].capacity;
    advised.capacity = own.device_bytes ? own.device_bytes : process.devices[i].capacity;
    if (const auto found = attributed.find(advised.device); found != attributed.end()) {
      advised.attribution = std::move(found->second);
      own.step_seqs = advised.attribution->step_seqs;
    }
    if (advised.undecidable.empty()) {
      Progress progress("settings", diagnose::settings_grid(process.rules.profile).size());
      advised.advice =
          diagnose::advise(process, i, own, [&](size_t done, size_t) { progress.step(done); });
    }
    all.push_back(std::move(advised));
  }
}

Json tried_json(const TriedSettings& tried) {
  return {{"alloc_conf", tried.settings},
          {"ooms", tried.ooms},
          {"reserved_peak_bytes", tried.reserved_peak},
          {"segment_calls", tried.segment_calls},
          {"alloc_retries", tried.retries},
          {"pareto", tried.on_pareto_front}};
}

Json advised_json(const Advised& advised) {
  Json out = {
      {"pid", advised.facts.pid == 0 ? Json(nullptr) : Json(advised.facts.pid)},
      {"program", advised.facts.program},
      {"device", advised.device},
      {"torch_version", advised.torch_version},
      {"capacity_bytes", advised.capacity ? Json(*advised.capacity) : Json(nullptr)},
      {"undecidable", advised.undecidable.empty() ? Json(nullptr) : Json(advised.undecidable)},
      {"notes", advised.notes}};
  if (!advised.advice) return out;
  const Advice& advice = *advised.advice;
  Json tried = Json::array();
  for (const TriedSettings& each : advice.tried) tried.push_back(tried_json(each));
  out["best"] = advice.best ? tried_json(*advice.best) : Json(nullptr);
  out["variable"] = advised.variable;
  out["default"] = tried_json(advice.default_settings);
  out["recorded"] = tried_json(advice.recorded_settings);
  out["live_peak_bytes"] = advice.live_peak;
  out["plan_peak_bytes"] = advice.plan_peak;
  out["kept_bytes"] = advice.shares.kept;
  out["returned_bytes"] = advice.shares.returned;
  out["ends_at_refusal"] = advice.ends_at_refusal;
  out["searched"] = advice.searched;
  out["exhaustive"] = advice.exhaustive;
  out["tried"] = tried;
  out["unlimited_peak_bytes"] = advice.unlimited_peak;
  out["cards"] = Json::array();
  for (const simcuda::GpuPreset* gpu : cards_for(advice)) {
    out["cards"].push_back({{"gpu", gpu->id}, {"total_bytes", gpu->total_bytes}});
  }
  out["remedies"] = Json::array();
  if (!advised.attribution) return out;
  for (const auto& remedy : diagnose::memory_remedies(*advised.attribution)) {
    out["remedies"].push_back(
        {{"name", remedy.name}, {"bytes", remedy.bytes}, {"text", remedy.text}});
  }
  return out;
}

std::string beyond_settings(const Advised& advised) {
  std::string text;
  if (advised.attribution) {
    const auto remedies = diagnose::memory_remedies(*advised.attribution);
    if (!remedies.empty()) {
      text += "\nwhat would lower the peak itself (each alone; they overlap)\n" +
              diagnose::remedies_text(remedies, advised.attribution->live_bytes);
    }
  }
  const auto cards = cards_for(*advised.advice);
  if (cards.empty()) return text;
  text += fmt::format("\ncards that hold {} and the context (fragscope fit tries them): ",
                      format_size(advised.advice->unlimited_peak));
  for (size_t i = 0; i < cards.size(); ++i) {
    text += fmt::format("{}{} ({})", i > 0 ? ", " : "", cards[i]->id,
                        format_size(cards[i]->total_bytes));
  }
  return text + "\n";
}

std::string text_of(const std::vector<Advised>& all) {
  std::string text;
  for (const Advised& advised : all) {
    text += text.empty() ? "" : "\n";
    text += fmt::format(
        "process {} {}, device {}, torch {}{}\n", pid_text(advised.facts.pid),
        one_line(advised.facts.program), advised.device, advised.torch_version,
        advised.capacity ? ", " + format_size(*advised.capacity) + " to be had" : std::string());
    if (advised.advice) {
      text += diagnose::advice_text(*advised.advice, advised.variable);
      text += beyond_settings(advised);
    } else {
      text += "undecidable: " + advised.undecidable + "\n";
    }
    for (const std::string& note : advised.notes) text += "note: " + one_line(note) + "\n";
  }
  return text;
}

Json loading_json(const diagnose::LoadingFacts& facts, const diagnose::LoadingAdvice& advice) {
  const auto known = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  Json rules = Json::array();
  for (const diagnose::LoadingRule& rule : advice.rules) {
    rules.push_back({{"name", rule.name},
                     {"says", rule.says},
                     {"verdict", diagnose::rule_verdict_name(rule.verdict)},
                     {"bytes", known(rule.bytes)},
                     {"why", rule.why}});
  }
  Json counts = Json::array();
  for (const diagnose::WorkerCount& count : advice.counts) {
    counts.push_back({{"name", count.name},
                      {"least", known(count.least)},
                      {"most", known(count.most)},
                      {"pinning", known(count.pinning)}});
  }
  return {{"measured",
           {{"card_bytes", known(facts.card_bytes)},
            {"pinned_peak_bytes", known(facts.pinned_peak)},
            {"pinned_torch_bytes", known(facts.pinned_torch)},
            {"pinned_padding_bytes", known(facts.pinned_padding)},
            {"batch_bytes", known(facts.batch_bytes)},
            {"step_seconds", known(facts.step_seconds)},
            {"wait_seconds", known(facts.wait_seconds)},
            {"workers", known(facts.workers)},
            {"workers_with_device", known(facts.workers_with_device)},
            {"worker_bytes", known(facts.worker_bytes)},
            {"shm_peak_bytes", known(facts.shm_peak)},
            {"shm_total_bytes", known(facts.shm_total)},
            {"available_least_bytes", known(facts.available_least)},
            {"cores", facts.cores},
            {"simulated", facts.simulated}}},
          {"in_flight_bytes", known(advice.in_flight_bytes)},
          {"rules", rules},
          {"counts", counts},
          {"recommended", known(advice.recommended)},
          {"reasons", advice.reasons}};
}

// The section about data loading, alone: no setting of the allocator depends on it.
int run_data_loading(const AdviseOptions& options) {
  auto run = open_run(options.path);
  if (!run.ok()) return fail(run.error());
  uint64_t events = 0;
  for (const trace::TraceReader& reader : run->processes) events += reader.process().event_count;
  const diagnose::LoadingFacts facts = data_loading_facts(*run, options.cores);
  const diagnose::LoadingAdvice advice = diagnose::advise_loading(facts);
  std::string text = diagnose::loading_text(facts, advice);
  if (options.json) {
    const Json document = {{"schema", 1},
                           {"data_loading", loading_json(facts, advice)},
                           {"warnings", all_warnings(*run)}};
    text = document_text(document);
  }
  const int code = reading_exit_code(*run, events);
  if (code == kExitNothingRecorded) {
    return fail(fmt::format("{}: no events were recorded", options.path), code);
  }
  const int written = print_output(text);
  return written != kExitOk ? written : code;
}

int run_advise(const AdviseOptions& options) {
  if (options.data_loading) return run_data_loading(options);
  const auto settings = parse_objective(options.objective);
  if (!settings.ok()) return fail(settings.error());
  auto run = open_run(options.path);
  if (!run.ok()) return fail(run.error());
  std::vector<Advised> all;
  uint64_t events = 0;
  bool found = options.pid == 0;
  for (trace::TraceReader& reader : run->processes) {
    if (options.pid != 0 && reader.process().pid != options.pid) continue;
    found = true;
    advise_process(*run, reader, *settings, all);
    events += reader.process().event_count;
  }
  if (!found)
    return fail(fmt::format("no process {} in {}", options.pid, options.path), kExitUsage);
  std::string text;
  if (options.json) {
    Json devices = Json::array();
    for (const Advised& advised : all) devices.push_back(advised_json(advised));
    const Json document = {{"schema", 1},
                           {"objective", options.objective},
                           {"devices", devices},
                           {"warnings", all_warnings(*run)}};
    text = document_text(document);
  } else {
    text = text_of(all);
  }
  const int code = reading_exit_code(*run, events);
  const int written = print_output(text);
  if (written != kExitOk) return written;
  if (code == kExitNothingRecorded || all.empty()) {
    return fail(fmt::format("{}: no allocations were recorded to advise on", options.path),
                kExitNothingRecorded);
  }
  if (code != kExitOk) return code;
  for (const Advised& each : all) {
    if (!each.advice || !settings->device_bytes ||
        each.advice->live_peak <= *settings->device_bytes)
      continue;
    return fail(
        fmt::format("process {}: nothing fits {}: {} are live at once, whatever the settings",
                    each.facts.pid, format_size(*settings->device_bytes),
                    format_size(each.advice->live_peak)),
        kExitNo);
  }
  const bool answered = std::any_of(all.begin(), all.end(),
                                    [](const Advised& each) { return each.advice.has_value(); });
  return answered ? kExitOk : kExitNo;
}

}  // namespace

void add_advise_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<AdviseOptions>();
  CLI::App* command = app.add_subcommand(
      "advise", "Find the best allocator settings for a recorded run, by replaying it");
  command->add_option("RUN", options->path, "run directory, trace, log or text trace")->required();
  command
      ->add_option("--objective", options->objective,
                   "peak (least reserved), mallocs (fewest segment calls), fits=12GiB (least "
                   "reserved on a device of that size)")
      ->capture_default_str();
  command->add_option("--pid", options->pid, "only this process");
  CLI::Option* loading =
      command->add_flag("--data-loading", options->data_loading,
                        "instead: what pinning and workers cost, and how many workers to use");
  command
      ->add_option("--cores", options->cores,
                   "with --data-loading: cores of the machine that is asked about (this one's)")
      ->check(CLI::Range(uint64_t{1}, uint64_t{4096}))
      ->needs(loading);
  command->add_flag("--json", options->json, "as JSON");
  command->callback([options, &context] { context.exit_code = run_advise(*options); });
}

}  // namespace fragscope::tools
