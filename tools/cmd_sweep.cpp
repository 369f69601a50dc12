// fragscope sweep: a command under every combination of a few values, recorded and compared.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/bytes.h"
#include "tools/command.h"
#include "tools/json_text.h"
#include "tools/run_analysis.h"
#include "tools/sweep_runs.h"

namespace fragscope::tools {
namespace {

constexpr unsigned kMostRepeats = 100;

struct SweepOptions {
  std::vector<std::string> vary;
  std::string gpu;
  std::string alloc_conf;
  std::string metric;
  std::string step_mark;
  unsigned repeats = 1;
  std::string output;
  bool json = false;
  bool quiet = false;
  std::vector<std::string> command;
};

Json combination_json(const SweepPlan& plan, const SweepCombination& combination) {
  Json values;
  for (size_t i = 0; i < plan.variables.size(); ++i) {
    values[plan.variables[i].name] = combination.values[i];
  }
  Json runs = Json::array();
  for (const SweepFigures& run : combination.runs) {
    runs.push_back({{"exit_code", run.exit_code},
                    {"seconds", run.seconds},
                    {"metric", run.metric ? Json(*run.metric) : Json(nullptr)},
                    {"reserved_peak_bytes", or_null(run.reserved_peak)},
                    {"allocated_peak_bytes", or_null(run.allocated_peak)},
                    {"driver_peak_bytes", or_null(run.driver_peak)},
                    {"pinned_peak_bytes", or_null(run.pinned_peak)},
                    {"rss_peak_bytes", or_null(run.rss_peak)},
                    {"shm_peak_bytes", or_null(run.shm_peak)},
                    {"ooms", run.ooms}});
  }
  return {{"values", values}, {"runs", runs}};
}

// "12.3" or "12.3 (11.9 to 12.8)".
std::string spread(std::vector<double> values) {
  if (values.empty()) return "–";
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += value;
  const std::string mean = fmt::format("{:.4g}", sum / static_cast<double>(values.size()));
  if (values.size() == 1) return mean;
  return fmt::format("{} ({:.4g} to {:.4g})", mean, values.front(), values.back());
}

// The highest of the repeats.
std::string peak_text(const SweepCombination& combination,
                      std::optional<uint64_t> SweepFigures::*figure) {
  std::optional<uint64_t> most;
  for (const SweepFigures& run : combination.runs) {
    if (run.*figure) most = std::max(most.value_or(0), *(run.*figure));
  }
  return most ? format_size(*most) : "–";
}

std::string table(const SweepPlan& plan, const std::vector<SweepCombination>& all) {
  std::string text;
  for (const Variable& variable : plan.variables) text += fmt::format("{:>10} ", variable.name);
  text += fmt::format("{:>24} {:>22} {:>12} {:>12} {:>12} {:>12} {:>12} {:>5}  {}\n",
                      plan.step_mark.empty() ? "metric" : "steps/s", "seconds", "reserved",
                      "allocated", "pinned", "host", "/dev/shm", "OOMs", "ended");
  const auto winner = winner_of(all);
  for (size_t i = 0; i < all.size(); ++i) {
    const SweepCombination& each = all[i];
    std::vector<double> metrics;
    std::vector<double> seconds;
    uint64_t ooms = 0;
    int code = 0;
    for (const SweepFigures& run : each.runs) {
      if (run.metric) metrics.push_back(*run.metric);
      seconds.push_back(run.seconds);
      ooms = std::max(ooms, run.ooms);
      if (run.exit_code != 0) code = run.exit_code;
    }
    for (const std::string& value : each.values) text += fmt::format("{:>10} ", one_line(value));
    text += fmt::format(
        "{:>24} {:>22} {:>12} {:>12} {:>12} {:>12} {:>12} {:>5}  {}{}\n", spread(metrics),
        spread(seconds), peak_text(each, &SweepFigures::reserved_peak),
        peak_text(each, &SweepFigures::allocated_peak), peak_text(each, &SweepFigures::pinned_peak),
        peak_text(each, &SweepFigures::rss_peak), peak_text(each, &SweepFigures::shm_peak), ooms,
        code == 0 ? "well" : fmt::format("exit code {}", code), winner == i ? "   <- best" : "");
  }
  return text;
}

Result<SweepPlan> make_plan(const SweepOptions& options) {
  SweepPlan plan;
  for (const std::string& text : options.vary) {
    auto variable = parse_variable(text);
    if (!variable.ok()) return variable.error();
    const auto words = with_value(options.command, variable->name, "");
    if (!words.ok()) return words.error();
    plan.variables.push_back(std::move(variable).value());
  }
  if (!options.gpu.empty()) plan.run_options = {"--gpu", options.gpu};
  if (!options.alloc_conf.empty()) {
    plan.run_options.insert(plan.run_options.end(), {"--alloc-conf", options.alloc_conf});
  }
  plan.metric = options.metric;
  plan.step_mark = options.step_mark;
  plan.repeats = options.repeats;
  plan.command = options.command;
  plan.directory = options.output;
  if (plan.directory.empty()) {
    const std::filesystem::path program(options.command[0]);
    plan.directory = fmt::format("fragscope-sweep-{}", program.filename().string());
  }
  return plan;
}

int run_sweep(const SweepOptions& options) {
  if (options.command.empty()) {
    return fail("no command given: fragscope sweep --vary NAME=… [options] -- COMMAND", kExitUsage);
  }
  const auto plan = make_plan(options);
  if (!plan.ok()) return fail(plan.error());
  std::error_code failed;
  std::filesystem::create_directories(plan->directory, failed);
  if (failed) return fail(plan->directory + ": " + failed.message(), kExitOutput);
  const auto all = run_sweep_plan(*plan, [&](const std::string& line) {
    if (!options.quiet) say(line);
  });
  std::filesystem::remove(plan->directory, failed);  // if nothing came into it
  if (!all.ok()) return fail(all.error());
  if (options.output.empty() && !options.quiet) {
    say("the recordings are in " + plan->directory + " (-o DIRECTORY: elsewhere)");
  }
  const auto winner = winner_of(*all);
  std::string text;
  if (options.json) {
    Json rows = Json::array();
    for (const SweepCombination& each : *all) rows.push_back(combination_json(*plan, each));
    const Json document = {{"schema", 1},
                           {"directory", plan->directory},
                           {"best", winner ? Json(*winner) : Json(nullptr)},
                           {"combinations", rows}};
    text = document_text(document);
  } else {
    text = table(*plan, *all);
  }
  const int written = print_output(text);
  if (written != kExitOk) return written;
  return winner ? kExitOk : kExitNo;
}

}  // namespace

void add_sweep_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand(
      "sweep", "Run a command under every combination of values and compare cost and memory");
  const auto options = std::make_shared<SweepOptions>();
  command
      ->add_option("--vary", options->vary,
                   "NAME=0,2,4,8 or NAME=1..4: {NAME} in the command; the first values are the "
                   "baseline; may be repeated")
      ->required();
  command->add_option("--gpu", options->gpu, "Simulate this GPU (times are then not those of one)");
  command->add_option("--alloc-conf", options->alloc_conf, "PyTorch's settings for every run");
  CLI::Option* metric =
      command->add_option("--metric", options->metric,
                          "What counts: a regular expression with one group, the last match in the "
                          "output; more is better. Without: the shortest run");
  command
      ->add_option("--step-mark", options->step_mark,
                   "What counts: steps a second, where each step begins with a mark or an NVTX "
                   "range of this text")
      ->excludes(metric);
  command->add_option("--repeats", options->repeats, "Runs of each combination")
      ->check(CLI::Range(1u, kMostRepeats))
      ->capture_default_str();
  command->add_option("-o,--output", options->output,
                      "Directory of the recordings; what is there already is taken up");
  command->add_flag("-q,--quiet", options->quiet, "No line for each run");
  command->add_flag("--json", options->json, "As JSON");
  command->footer("Usage: fragscope sweep --vary NAME=VALUES [OPTIONS] -- COMMAND [ARGUMENTS]");
  command->callback([options, &context] {
    options->command = context.command_line;
    context.exit_code = run_sweep(*options);
  });
}

}  // namespace fragscope::tools
