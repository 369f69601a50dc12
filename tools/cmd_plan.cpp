// fragscope plan: makes a plan of where each request of a recorded program goes, for
// `fragscope run --plan`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <map>
#include <memory>

#include "base/bytes.h"
#include "enforce/plan.h"
#include "replay/recorded_process.h"
#include "replay/step_plan.h"
#include "tools/command.h"
#include "tools/json_text.h"
#include "tools/plan_trial.h"
#include "tools/run_analysis.h"

namespace fragscope::tools {
namespace {

using replay::ProgramRequest;
using replay::ProgramStep;

struct PlanOptions {
  std::string run;
  std::string output = "plan.json";
  std::string step = "auto";
  std::optional<uint32_t> pid;
  std::optional<int32_t> device;
  bool json = false;
};

// One device's requests of one process, and what else a plan is made from.
struct Candidate {
  replay::ProcessFacts facts;
  int32_t device = 0;
  replay::CallList calls;
  uint64_t recorded_reserved = 0;  // peak; 0: the program has no allocator of its own
  std::map<std::string, std::vector<uint64_t>> marks;  // seqs by text
};

struct Found {
  std::optional<ProgramStep> step;
  std::string by;  // "marks", "period", "whole"
  std::string mark;
};

struct Made {
  Found found;
  replay::StepPlan layout;
  enforce::Plan plan;
  PlanTrial trial;
};

std::map<std::string, std::vector<uint64_t>> marks_of(replay::EventStream& events,
                                                      trace::TraceReader& reader) {
  std::map<std::string, std::vector<uint64_t>> marks;
  events.rewind();
  for (auto batch = events.next_batch(); !batch.empty(); batch = events.next_batch()) {
    for (const Event& event : batch) {
      const bool begins = event.kind == EventKind::mark || event.kind == EventKind::range_push ||
                          event.kind == EventKind::range_start;
      if (!begins) continue;
      const auto& texts = reader.tables().texts;
      const auto text = texts.find(event.text);
      if (text != texts.end()) marks[text->second].push_back(event.seq);
    }
  }
  return marks;
}

// The device with most requests, of those asked for.
std::optional<Candidate> choose(OpenRun& run, const PlanOptions& options, uint64_t& events_read) {
  std::optional<Candidate> best;
  for (trace::TraceReader& reader : run.processes) {
    reader.load_tables();
    events_read += reader.process().event_count;
    if (options.pid && reader.process().pid != *options.pid) continue;
    const replay::ProcessFacts facts = process_facts(run, reader);
    ProcessEvents sized(reader, facts);
    replay::ReadSettings settings;
    settings.with_calls = settings.with_seqs = true;
    replay::RecordedProcess process = read_process(sized.stream(), facts, settings);
    for (replay::RecordedDevice& device : process.devices) {
      if (options.device && device.device != *options.device) continue;
      if (best && device.calls.allocations <= best->calls.allocations) continue;
      best.emplace();
      best->facts = facts;
      best->device = device.device;
      best->calls = std::move(device.calls);
      best->recorded_reserved = device.verify ? device.figures.reserved.peak : 0;
      best->marks = marks_of(sized.stream(), reader);
    }
  }
  return best;
}

size_t covered(const std::optional<ProgramStep>& step) {
  return step ? step->length * step->repeats : 0;
}

Found find_step(const Candidate& candidate, const std::vector<ProgramRequest>& requests,
                const std::string& how) {
  Found found;
  if (how == "auto" || how == "marks") {
    for (const auto& [text, seqs] : candidate.marks) {
      const auto step = step_by_marks(requests, seqs);
      if (covered(step) > covered(found.step)) found = {step, "marks", text};
    }
    if (found.step || how == "marks") return found;
  }
  if (how == "auto" || how == "period") found = {step_by_period(requests), "period", ""};
  if (how == "whole") found = {std::nullopt, "whole", ""};
  return found;
}

enforce::Plan plan_from(const std::vector<ProgramRequest>& requests,
                        const replay::StepPlan& layout) {
  enforce::Plan plan;
  plan.arena_bytes = layout.arena_bytes;
  plan.loop_start = layout.loop_start;
  for (size_t i = 0; i < layout.offsets.size(); ++i) {
    plan.requests.push_back({requests[i].bytes, layout.offsets[i], requests[i].stream});
  }
  return plan;
}

Json made_from(const PlanOptions& options, const Candidate& candidate, const Made& made) {
  Json step = nullptr;
  if (made.found.step) {
    step = {{"first_request", made.found.step->start},
            {"requests", made.found.step->length},
            {"repeats", made.found.step->repeats}};
  }
  return {{"run", options.run},
          {"pid", candidate.facts.pid},
          {"program", candidate.facts.program},
          {"torch_version", candidate.facts.property("torch_version")
                                ? Json(*candidate.facts.property("torch_version"))
                                : Json(nullptr)},
          {"found_by", made.found.by},
          {"mark", made.found.by == "marks" ? Json(made.found.mark) : Json(nullptr)},
          {"step", std::move(step)}};
}

Json figures_of(const Candidate& candidate, const Made& made) {
  return {{"live_peak_bytes", made.layout.live_peak},
          {"recorded_reserved_peak_bytes",
           candidate.recorded_reserved != 0 ? Json(candidate.recorded_reserved) : Json(nullptr)},
          {"planned_reserved_peak_bytes", made.trial.peak_reserved},
          {"planned_allocated_peak_bytes", made.trial.peak_allocated},
          {"recorded_requests", made.trial.requests},
          {"placed_requests", made.trial.placed}};
}

// One request a line.
std::string plan_text(const PlanOptions& options, const Candidate& candidate, const Made& made) {
  Json head = {{"fragscope_plan", enforce::kPlanVersion},
               {"device", candidate.device},
               {"arena_bytes", made.plan.arena_bytes},
               {"loop_start", made.plan.loop_start},
               {"made_from", made_from(options, candidate, made)},
               {"figures", figures_of(candidate, made)}};
  std::string text = document_text(head);
  text.resize(text.rfind("\n}"));
  text += ",\n  \"requests\": [";
  for (size_t i = 0; i < made.plan.requests.size(); ++i) {
    const enforce::PlannedRequest& request = made.plan.requests[i];
    const std::string offset =
        request.offset == enforce::kUnplanned ? "null" : std::to_string(request.offset);
    const uint32_t death = made.layout.deaths[i];
    text += fmt::format(
        "{}\n    {{\"size\": {}, \"offset\": {}, \"stream\": {}, \"lifetime\": [{}, {}]}}",
        i == 0 ? "" : ",", request.size, offset, request.stream, i,
        death == replay::kNoDeath ? "null" : std::to_string(death));
  }
  return text + "\n  ]\n}\n";
}

std::string step_text(const Made& made) {
  if (!made.found.step) return "the whole run, once";
  const ProgramStep& step = *made.found.step;
  return fmt::format("{} requests, {} times in a row, after {} others{}", step.length, step.repeats,
                     made.plan.loop_start,
                     made.found.by == "marks"
                         ? fmt::format(" (from mark to mark \"{}\")", one_line(made.found.mark))
                         : std::string());
}

void print_summary(const PlanOptions& options, const Candidate& candidate, const Made& made) {
  fmt::print("process {} {}, device {}\n", pid_text(candidate.facts.pid),
             one_line(candidate.facts.program), candidate.device);
  fmt::print("  step            {}\n", step_text(made));
  fmt::print("  arena           {}\n", format_size(made.plan.arena_bytes));
  fmt::print(
      "  live peak       {}  of the planned requests, from one round of the loop to the next\n",
      format_size(made.layout.live_peak));
  if (candidate.recorded_reserved != 0) {
    fmt::print("  reserved        {} at most in the recording\n",
               format_size(candidate.recorded_reserved));
  }
  fmt::print("                  {} at most with the plan: {} of {} requests get their place\n",
             format_size(made.trial.peak_reserved), made.trial.placed, made.trial.requests);
  if (candidate.recorded_reserved != 0 && made.trial.peak_reserved >= candidate.recorded_reserved) {
    warn(
        "with this plan the program needs no less than without: it is not worth following "
        "(another --step may give a better one)");
  }
  fmt::print("plan written to {}; apply it with `fragscope run --plan {} -- COMMAND`\n",
             one_line(options.output), one_line(options.output));
}

int write_plan(const PlanOptions& options, const std::string& text) {
  std::ofstream file(options.output, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return kExitOk;
  return fail(options.output + ": cannot be written", kExitOutput);
}

int make(const PlanOptions& options) {
  auto run = open_run(options.run);
  if (!run.ok()) return fail(run.error());
  uint64_t events = 0;
  const std::optional<Candidate> candidate = choose(*run, options, events);
  if (const int code = reading_exit_code(*run, events); code != kExitOk) {
    return code == kExitNothingRecorded ? fail(options.run + ": no events were recorded", code)
                                        : code;
  }
  const std::vector<ProgramRequest> requests =
      candidate ? requests_of(candidate->calls) : std::vector<ProgramRequest>{};
  if (requests.empty()) {
    return fail(options.run + ": no requests for device memory are recorded there", kExitNo);
  }
  Made made;
  made.found = find_step(*candidate, requests, options.step);
  if (!made.found.step && options.step != "whole") {
    return fail(
        options.run +
            ": no step that repeats exactly at least 3 times in a row is found; `--step whole` "
            "plans the run as it was, for programs that do the same every time",
        kExitNo);
  }
  made.layout = plan_step(requests, made.found.step);
  made.plan = plan_from(requests, made.layout);
  if (const Status fits = enforce::check_plan(made.plan); !fits) return fail(fits.error(), kExitNo);
  made.trial = try_plan(made.plan, candidate->calls);
  if (const int code = write_plan(options, plan_text(options, *candidate, made)); code != kExitOk) {
    return code;
  }
  if (!options.json) {
    print_summary(options, *candidate, made);
    return kExitOk;
  }
  const Json answer = {{"schema", 1},
                       {"plan", options.output},
                       {"device", candidate->device},
                       {"arena_bytes", made.plan.arena_bytes},
                       {"requests", made.plan.requests.size()},
                       {"loop_start", made.plan.loop_start},
                       {"made_from", made_from(options, *candidate, made)},
                       {"figures", figures_of(*candidate, made)},
                       {"warnings", all_warnings(*run)}};
  return print_output(document_text(answer));
}

}  // namespace

void add_plan_command(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App* command =
      app.add_subcommand("plan", "Plan where each request of a recorded program goes");
  command->add_option("RUN", options->run, "A recorded run")->required();
  command->add_option("-o,--output", options->output, "The plan's file (plan.json)");
  command
      ->add_option("--step", options->step,
                   "What repeats: from mark to mark, by its requests (period), nothing (whole)")
      ->check(CLI::IsMember({"auto", "marks", "period", "whole"}));
  command->add_option("--pid", options->pid, "Of this process (the one with most requests)");
  command->add_option("--device", options->device, "Of this device (the one with most requests)");
  command->add_flag("--json", options->json, "Print the answer as JSON");
  command->callback([options, &context] { context.exit_code = make(*options); });
}

}  // namespace fragscope::tools
