// fragscope attribute: who holds the memory at the peak, and what for.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "diagnose/attribution.h"
#include "diagnose/attribution_text.h"
#include "metrics/process_metrics.h"
#include "report/stack_lines.h"
#include "symbolize/symbolizer.h"
#include "tools/command.h"
#include "tools/json_text.h"
#include "tools/moment.h"
#include "tools/run_analysis.h"
#include "tools/symbol_options.h"

namespace fragscope::tools {
namespace {

using diagnose::Attribution;

struct AttributeOptions {
  std::string path;
  uint32_t pid = 0;  // 0: all
  uint64_t rows = 8;
  bool json = false;
  symbolize::Places places;
  std::string at = "peak";
};

uint64_t last_event(replay::EventStream& events) {
  Event event;
  events.rewind();
  while (events.next(event)) {
  }
  return event.seq;
}

// Puts the moment that was asked for in the place of the peak; devices that have none are left out.
// `last`: number of the process's last event, where one was asked for.
void choose_moment(const AttributeOptions& options, replay::EventStream& events, uint64_t last,
                   metrics::ProcessMetrics& measured) {
  if (options.at == "peak") return;
  const auto asked = moment_event(options.at);  // else the last refusal or the end
  std::map<int32_t, uint64_t> seqs;
  for (const auto& [index, device] : measured.devices) {
    if (!device.heap) continue;
    if (options.at == "oom" && device.ooms.empty()) continue;
    if (asked.value_or(0) > last) continue;
    seqs[index] = options.at == "oom" ? device.ooms.back().seq : asked.value_or(UINT64_MAX - 1);
  }
  auto moments = metrics::moments_at(events, measured.facts, seqs);
  for (auto& [index, device] : measured.devices) {
    const auto moment = moments.find(index);
    device.at_peak.reset();
    if (moment != moments.end()) device.at_peak = std::move(moment->second);
  }
}

std::string moment_words(const AttributeOptions& options) {
  if (options.at == "peak") return "the peak";
  if (options.at == "oom") return "the last refusal";
  return options.at == "end" ? "the end" : "the moment asked for";
}

Json share_json(const diagnose::Share& share) {
  return {{"bytes", share.bytes}, {"blocks", share.blocks}};
}

template <size_t N, typename Name>
Json shares_json(const std::array<diagnose::Share, N>& shares, Name name) {
  Json out = Json::object();
  for (size_t i = 0; i < N; ++i) out[std::string(name(i))] = share_json(shares[i]);
  return out;
}

Json named_json(const std::vector<diagnose::NamedShare>& shares, bool with_place) {
  Json out = Json::array();
  for (const diagnose::NamedShare& share : shares) {
    Json row = {{"name", share.name.empty() ? Json(nullptr) : Json(share.name)}};
    if (with_place) {
      row["file"] = share.file.empty() ? Json(nullptr) : Json(share.file);
      row["line"] = share.line > 0 ? Json(share.line) : Json(nullptr);
    }
    row.update(share_json(share));
    out.push_back(row);
  }
  return out;
}

// Any list of shares that have a stack.
template <typename Entry>
Json stacks_json(const std::vector<Entry>& entries, const diagnose::StackLines& lines) {
  Json out = Json::array();
  for (const Entry& entry : entries) {
    Json row = share_json(entry);
    if constexpr (requires { entry.role; }) {
      row["role"] = diagnose::role_name(entry.role);
      row["phase"] = diagnose::phase_name(entry.phase);
    }
    if constexpr (requires { entry.steps; }) row["steps"] = entry.steps;
    row["stack"] = lines(entry.stack, entry.seq);
    out.push_back(row);
  }
  return out;
}

Json device_json(const Attribution& data, const diagnose::StackLines& lines) {
  using namespace diagnose;
  Json outside = Json::array();
  for (const OutsideShare& share : data.outside) {
    Json row = {{"library", share.library}};
    row.update(share_json(share));
    outside.push_back(row);
  }
  const Growth& growth = data.growth;
  Json grown = {{"steps", growth.steps},
                {"first_bytes", growth.first_bytes},
                {"last_bytes", growth.last_bytes},
                {"median_change_bytes", growth.median_change},
                {"sure", growth.sure},
                {"suspects", stacks_json(growth.suspects, lines)}};
  Json requested = data.requests_known ? Json(data.requested_bytes) : Json(nullptr);
  return {
      {"device", data.device},
      {"seq", data.seq},
      {"t_ns", data.time_ns},
      {"live_bytes", data.live_bytes},
      {"requested_bytes", requested},
      {"reserved_bytes", or_null(data.reserved_bytes)},
      {"driver_bytes", or_null(data.driver_bytes)},
      {"context_bytes", or_null(data.context_bytes)},
      {"roles",
       shares_json(data.roles, [](size_t i) { return role_name(static_cast<TensorRole>(i)); })},
      {"phases",
       shares_json(data.phases, [](size_t i) { return phase_name(static_cast<LoopPhase>(i)); })},
      {"lifetimes", shares_json(data.lifetimes,
                                [](size_t i) { return lifetime_name(static_cast<Lifetime>(i)); })},
      {"modules", named_json(data.modules, true)},
      {"ranges", named_json(data.ranges, false)},
      {"outer_ranges", named_json(data.outer_ranges, false)},
      {"stacks", stacks_json(data.stacks, lines)},
      {"outside", outside},
      {"rounding", stacks_json(data.rounding, lines)},
      {"steps", data.steps},
      {"growth", grown},
      {"churn",
       {{"allocations", data.allocations},
        {"bytes", data.allocated_bytes},
        {"stacks", stacks_json(data.churn, lines)}}}};
}

struct Answer {
  std::string text;
  Json processes = Json::array();
  std::vector<std::string> warnings;
  uint64_t events = 0;
  uint64_t last = 0;  // event of all processes, where one was asked for
  bool any_device = false;
};

void attribute_process(const OpenRun& run, trace::TraceReader& reader,
                       const AttributeOptions& options, Answer& answer) {
  reader.load_tables();
  const replay::ProcessFacts facts = process_facts(run, reader);
  ProcessEvents events(reader, facts);
  metrics::ProcessMetrics measured = metrics::measure_process(events.stream(), facts);
  const uint64_t last = moment_event(options.at) ? last_event(events.stream()) : 0;
  answer.last = std::max(answer.last, last);
  choose_moment(options, events.stream(), last, measured);
  symbolize::Symbolizer symbols(reader.tables(), options.places);
  diagnose::StackRoles roles(&symbols);
  auto devices = diagnose::attribute(events.stream(), measured, roles, reader.tables().texts);
  constexpr size_t kAll = 1000;
  report::StackStyle style;
  if (options.json) style = {kAll, false};
  const diagnose::StackLines lines = [made = report::StackLines(&symbols, style)](uint32_t stack,
                                                                                  uint64_t seq) {
    return made.lines(stack, seq);
  };
  answer.events += reader.process().event_count;
  answer.any_device |= !devices.empty();
  Json list = Json::array();
  if (!options.json) {
    answer.text += (answer.text.empty() ? "process " : "\nprocess ") + pid_text(facts.pid) + " " +
                   one_line(facts.program) + "\n";
    if (moment_event(options.at).value_or(0) > last) {
      answer.text += fmt::format("its last event is {}\n", last);
    } else if (devices.empty()) {
      answer.text += "no blocks of an allocator were recorded\n";
    }
  }
  for (Attribution& device : devices) {
    device.moment = moment_words(options);
    if (options.json) {
      list.push_back(device_json(device, lines));
    } else {
      answer.text += "\n" + attribution_text(device, lines, options.rows);
    }
  }
  answer.processes.push_back({{"pid", facts.pid == 0 ? Json(nullptr) : Json(facts.pid)},
                              {"program", facts.program},
                              {"devices", list}});
  for (const std::string& warning : symbols.warnings()) answer.warnings.push_back(warning);
}

int run_attribute(const AttributeOptions& options) {
  if (const std::string problem = problem_of(options.places); !problem.empty()) {
    return fail(problem, kExitUsage);
  }
  auto run = open_run(options.path);
  if (!run.ok()) return fail(run.error());
  Answer answer;
  for (trace::TraceReader& reader : run->processes) {
    if (options.pid != 0 && reader.process().pid != options.pid) continue;
    attribute_process(*run, reader, options, answer);
  }
  if (options.pid != 0 && answer.processes.empty()) {
    return fail("no process " + std::to_string(options.pid) + " in " + options.path, kExitUsage);
  }
  const auto asked = moment_event(options.at);
  if (asked && *asked > answer.last && answer.events > 0) {
    return fail("--at " + options.at + ": " + not_recorded_text(*asked, answer.last), kExitNo);
  }
  for (const std::string& warning : all_warnings(*run)) answer.warnings.push_back(warning);
  if (options.json) {
    const Json document = {{"schema", 1},
                           {"at", options.at},
                           {"processes", answer.processes},
                           {"warnings", answer.warnings}};
    answer.text = document_text(document);
  }
  const int code = reading_exit_code(*run, answer.events);
  const int written = print_output(answer.text);
  if (written != kExitOk) return written;
  if (code != kExitOk) return code;
  if (answer.any_device) return kExitOk;
  if (options.at != "peak") {
    return fail(options.path + ": no blocks were recorded at " + moment_words(options),
                kExitNothingRecorded);
  }
  return fail(options.path + ": no blocks of an allocator were recorded", kExitNothingRecorded);
}

}  // namespace

void add_attribute_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<AttributeOptions>();
  CLI::App* command = app.add_subcommand("attribute",
                                         "Who holds the memory at the peak, or at another moment: "
                                         "role, phase, module, stack, owner, lifetime");
  command
      ->add_option("RUN", options->path,
                   "run directory, trace, log, text trace or PyTorch snapshot")
      ->required();
  command->add_option("--pid", options->pid, "only this process");
  command
      ->add_option("--at", options->at,
                   "peak, oom (the last refusal), end, or the number of an event: after it")
      ->check(moment_problem)
      ->capture_default_str();
  command->add_option("--rows", options->rows, "rows of each list (text)")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000}))
      ->capture_default_str();
  add_symbol_options(*command, options->places);
  command->add_flag("--json", options->json, "as JSON, with every row and whole stacks");
  command->callback([options, &context] { context.exit_code = run_attribute(*options); });
}

}  // namespace fragscope::tools
