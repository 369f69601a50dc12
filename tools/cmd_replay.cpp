// fragscope replay: the recorded allocator rebuilt and checked, or recomputed under other settings.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/bytes.h"
#include "metrics/process_metrics.h"
#include "metrics/replay_metrics.h"
#include "replay/event_stream.h"
#include "report/build_report.h"
#include "report/json_report.h"
#include "report/text_report.h"
#include "tools/command.h"
#include "tools/moment.h"
#include "tools/replay_comparison.h"
#include "tools/replay_export.h"
#include "tools/run_analysis.h"
#include "tools/symbol_options.h"

namespace fragscope::tools {
namespace {

struct ReplayCommand {
  std::string path;
  uint64_t max_split_size_mb = 0;
  std::string alloc_conf;
  std::string device_memory;
  std::string torch;
  std::vector<std::string> as;
  std::string sweep;
  ExportOptions snapshot;
  bool json = false;
  bool strict = false;
  CLI::Option* max_split_given = nullptr;
  CLI::Option* alloc_conf_given = nullptr;
  CLI::Option* export_given = nullptr;
};

Result<replay::ReplayOptions> replay_options(const ReplayCommand& command) {
  replay::ReplayOptions options;
  if (command.max_split_given->count() > 0) {
    options.max_split_size_bytes = command.max_split_size_mb * kMiB;
  }
  if (command.alloc_conf_given->count() > 0) options.alloc_conf = command.alloc_conf;
  if (!command.torch.empty()) options.torch_version = command.torch;
  if (!command.device_memory.empty()) {
    auto bytes = parse_size(command.device_memory);
    if (!bytes) return bytes.error();
    if (*bytes == 0) {
      return Error{ErrorCode::kInvalidArgument, "--device-memory must not be 0"};
    }
    options.device_memory = *bytes;
  }
  return options;
}

// An error: no release that can be modelled. A newer one than all that are known: a warning.
Status check_release(const std::string& torch) {
  if (torch.empty()) return Done{};
  const auto match = model::asked_version_profile(torch);
  if (!match) return Error{match.error().code, "--torch: " + match.error().text};
  if (!match->exact) {
    warn("no rules for torch " + torch + " yet, using those of " +
         std::string(match->profile->name));
  }
  return Done{};
}

int run_comparison(const ReplayCommand& command, const replay::ReplayOptions& replay) {
  if (command.strict) return fail("--strict goes with neither --as nor --sweep", kExitUsage);
  ComparisonOptions options;
  options.as = command.as;
  options.sweep_file = command.sweep;
  options.alloc_conf = replay.alloc_conf;
  if (replay.max_split_size_bytes) {
    std::string& conf = options.alloc_conf ? *options.alloc_conf : options.alloc_conf.emplace();
    if (!conf.empty()) conf += ",";
    conf += "max_split_size_mb:" + std::to_string(*replay.max_split_size_bytes / kMiB);
  }
  options.torch_version = replay.torch_version;
  options.device_memory = replay.device_memory;
  options.json = command.json;
  auto run = open_run(command.path);
  if (!run) return fail(run.error());
  return compare_allocators(*run, options);
}

int run_export(const ReplayCommand& command, const replay::ReplayOptions& replay) {
  if (command.strict || !command.as.empty() || !command.sweep.empty()) {
    return fail("--export-snapshot goes with none of --strict, --as and --sweep", kExitUsage);
  }
  if (const auto problem = problem_of(command.snapshot.places); !problem.empty()) {
    return fail(problem, kExitUsage);
  }
  ExportOptions options = command.snapshot;
  options.replay = replay;
  options.json = command.json;
  auto run = open_run(command.path);
  if (!run) return fail(run.error());
  return export_snapshot(*run, options);
}

int run_replay(const ReplayCommand& command) {
  const auto options = replay_options(command);
  if (!options) return fail(options.error());
  if (const Status known = check_release(command.torch); !known) return fail(known.error());
  if (command.export_given->count() > 0) return run_export(command, *options);
  if (!command.as.empty() || !command.sweep.empty()) return run_comparison(command, *options);
  auto run = open_run(command.path);
  if (!run) return fail(run.error());
  report::ReportData data;
  data.run = run_data(*run);
  bool perfect = true;
  uint64_t events = 0;
  for (trace::TraceReader& reader : run->processes) {
    reader.load_tables();
    const replay::ProcessFacts facts = process_facts(*run, reader);
    ProcessEvents sized(reader, facts);
    const metrics::ProcessMetrics measured = metrics::measure_process(sized.stream(), facts);
    replay::TraceStream stream(reader);
    const auto replayed = metrics::measure_replay(stream, facts, *options);
    if (!replayed) return fail(replayed.error());
    perfect = perfect && replayed->perfect;
    events += measured.events;
    data.processes.push_back(report::build_replayed_process(measured, *replayed));
    if (const auto damage = damage_of(reader, measured.events)) {
      report::mark_damaged(*damage, data.processes.back());
    }
  }
  data.warnings = all_warnings(*run);
  const int code = reading_exit_code(*run, events);
  const int written = print_output(command.json ? report::render_json(data)
                                                : report::render_text(data, output_style()));
  if (written != kExitOk) return written;
  if (code != kExitOk) return code;
  const bool whole = std::none_of(run->processes.begin(), run->processes.end(),
                                  [](const auto& reader) { return reader.damage().has_value(); });
  return command.strict && !(perfect && whole) ? kExitNo : kExitOk;
}

void add_export_options(CLI::App& command, ReplayCommand& options) {
  ExportOptions& snapshot = options.snapshot;
  options.export_given = command.add_option(
      "--export-snapshot", snapshot.output,
      "instead: write the allocator's state to this file, as PyTorch's memory snapshots are");
  const auto with_export = [&](CLI::Option* option) { return option->needs(options.export_given); };
  with_export(command.add_option("--at", snapshot.at,
                                 "the moment: end, peak (most bytes allocated in the recording), "
                                 "oom (first request that failed), or an event's number"))
      ->check(moment_problem)
      ->capture_default_str();
  with_export(command.add_option("--pid", snapshot.pid,
                                 "of this process (default: the one with most events)"));
  with_export(command.add_option("--trace-entries", snapshot.trace_entries,
                                 "newest entries of each device's trace that the file gets"))
      ->check(whole_number)
      ->capture_default_str();
  add_symbol_options(command, snapshot.places);
}

}  // namespace

void add_replay_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ReplayCommand>();
  CLI::App* command = app.add_subcommand(
      "replay", "Rebuild the recorded allocator exactly, or under other settings");
  command
      ->add_option("RUN", options->path,
                   "run directory, trace, log, text trace or PyTorch snapshot")
      ->required();
  options->max_split_given = command
                                 ->add_option("--max-split-size-mb", options->max_split_size_mb,
                                              "what if max_split_size_mb were this")
                                 ->check(whole_number);
  options->alloc_conf_given = command->add_option(
      "--alloc-conf", options->alloc_conf, "what if the settings were these (PyTorch's grammar)");
  command->add_option("--device-memory", options->device_memory,
                      "what if the device had this much memory");
  command->add_option("--torch", options->torch, "what if PyTorch were this release");
  command->add_option("--as", options->as,
                      "side by side: torch, torch-2.N, cuda (no caching), plan (lower bound); a "
                      "comma list, or repeated");
  command->add_option("--sweep", options->sweep,
                      "side by side: a file with one [allocator] [settings] a line; - is standard "
                      "input");
  add_export_options(*command, *options);
  command->add_flag(
      "--strict", options->strict,
      "exit with 1 unless every prediction of the verify was right and the trace whole");
  command->add_flag("--json", options->json, "print the figures as JSON");
  command->callback([options, &context] { context.exit_code = run_replay(*options); });
}

}  // namespace fragscope::tools
