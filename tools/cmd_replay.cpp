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
#include "tools/run_analysis.h"

namespace fragscope::tools {
namespace {

struct ReplayCommand {
  std::string path;
  uint64_t max_split_size_mb = 0;
  std::string alloc_conf;
  std::string device_memory;
  std::string torch;
  bool json = false;
  bool strict = false;
  CLI::Option* max_split_given = nullptr;
  CLI::Option* alloc_conf_given = nullptr;
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

void warn_of_unknown_release(const std::string& torch) {
  if (torch.empty() || model::find_version_profile(torch).exact) return;
  warn("no profile for torch " + torch + ", using " +
       std::string(model::find_version_profile(torch).profile->name));
}

int run_replay(const ReplayCommand& command) {
  const auto options = replay_options(command);
  if (!options) return fail(options.error());
  warn_of_unknown_release(command.torch);
  auto run = open_run(command.path);
  if (!run) return fail(run.error());
  report::ReportData data;
  data.run = run_data(*run);
  bool perfect = true;
  uint64_t events = 0;
  for (trace::TraceReader& reader : run->processes) {
    reader.load_tables();
    replay::TraceStream stream(reader);
    const replay::ProcessFacts facts = process_facts(*run, reader);
    const metrics::ProcessMetrics measured = metrics::measure_process(stream, facts);
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

}  // namespace

void add_replay_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ReplayCommand>();
  CLI::App* command = app.add_subcommand(
      "replay", "Rebuild the recorded allocator exactly, or under other settings");
  command->add_option("RUN", options->path, "run directory, trace, log or text trace")->required();
  options->max_split_given = command
                                 ->add_option("--max-split-size-mb", options->max_split_size_mb,
                                              "what if max_split_size_mb were this")
                                 ->check(CLI::NonNegativeNumber);
  options->alloc_conf_given = command->add_option(
      "--alloc-conf", options->alloc_conf, "what if the settings were these (PyTorch's grammar)");
  command->add_option("--device-memory", options->device_memory,
                      "what if the device had this much memory");
  command->add_option("--torch", options->torch, "what if PyTorch were this release");
  command->add_flag(
      "--strict", options->strict,
      "exit with 1 unless every prediction of the verify was right and the trace whole");
  command->add_flag("--json", options->json, "print the figures as JSON");
  command->callback([options, &context] { context.exit_code = run_replay(*options); });
}

}  // namespace fragscope::tools
