// fragscope report: peaks, fragmentation, gaps, stacks of a recorded run.
#include <CLI/CLI.hpp>
#include <memory>

#include "metrics/process_metrics.h"
#include "replay/event_stream.h"
#include "report/build_report.h"
#include "report/json_report.h"
#include "report/text_report.h"
#include "symbolize/symbolizer.h"
#include "tools/command.h"
#include "tools/run_analysis.h"
#include "tools/symbol_options.h"

namespace fragscope::tools {
namespace {

struct ReportOptions {
  std::string path;
  uint32_t pid = 0;  // 0: all
  bool json = false;
  bool no_stacks = false;
  bool full_stacks = false;
  symbolize::Places places;
};

void add_process(const OpenRun& run, trace::TraceReader& reader, const ReportOptions& options,
                 report::ReportData& data) {
  reader.load_tables();
  const replay::ProcessFacts facts = process_facts(run, reader);
  ProcessEvents events(reader, facts);
  const metrics::ProcessMetrics measured = metrics::measure_process(events.stream(), facts);
  if (options.no_stacks) {
    data.processes.push_back(report::build_process(measured, nullptr));
  } else {
    symbolize::Symbolizer symbols(reader.tables(), options.places);
    report::BuildOptions build;
    if (options.full_stacks) build.frames = SIZE_MAX;
    build.fold = !options.full_stacks;
    data.processes.push_back(report::build_process(measured, &symbols, build));
    for (const std::string& warning : symbols.warnings()) data.warnings.push_back(warning);
  }
  set_reserved_ranges(data.run, data.processes.back());
  data.processes.back().phases = report::phases_of(measured, reader.tables().texts);
  if (const auto damage = damage_of(reader, measured.events)) {
    report::mark_damaged(*damage, data.processes.back());
  }
}

int run_report(const ReportOptions& options) {
  if (const std::string problem = problem_of(options.places); !problem.empty()) {
    return fail(problem, kExitUsage);
  }
  auto run = open_run(options.path);
  if (!run) return fail(run.error());
  report::ReportData data;
  data.run = run_data(*run);
  uint64_t events = 0;
  for (trace::TraceReader& reader : run->processes) {
    if (options.pid != 0 && reader.process().pid != options.pid) continue;
    add_process(*run, reader, options, data);
    events += data.processes.back().events;
  }
  report::link_shared_memory(data);
  for (const std::string& warning : all_warnings(*run)) data.warnings.push_back(warning);
  if (options.pid != 0 && data.processes.empty()) {
    return fail("no process " + std::to_string(options.pid) + " in " + options.path, kExitUsage);
  }
  const int code = reading_exit_code(*run, events);
  const int written = print_output(options.json ? report::render_json(data)
                                                : report::render_text(data, output_style()));
  return written != kExitOk ? written : code;
}

}  // namespace

void add_report_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command = app.add_subcommand(
      "report", "Peaks, fragmentation, largest gaps and their owners of a recorded run");
  command
      ->add_option("RUN", options->path,
                   "run directory, trace, log, text trace or PyTorch snapshot")
      ->required();
  command->add_option("--pid", options->pid, "only this process");
  command->add_flag("--no-stacks", options->no_stacks, "do not look symbols up");
  command->add_flag("--full-stacks", options->full_stacks,
                    "every frame, none folded into \"… N frames of\"");
  add_symbol_options(*command, options->places);
  command->add_flag("--json", options->json, "print the report as JSON");
  command->callback([options, &context] { context.exit_code = run_report(*options); });
}

}  // namespace fragscope::tools
