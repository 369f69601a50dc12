// fragscope check-budget: a gate for pipelines. Does a run stay within limits, and is it no worse
// than an earlier one?
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>

#include "base/bytes.h"
#include "diagnose/budget.h"
#include "replay/event_stream.h"
#include "tools/command.h"
#include "tools/json_text.h"
#include "tools/run_analysis.h"

namespace fragscope::tools {
namespace {

using diagnose::BudgetCheck;
using diagnose::BudgetFigure;

struct SizeOption {
  BudgetFigure figure;
  const char* name;
  const char* help;
};
constexpr SizeOption kSizeOptions[] = {
    {BudgetFigure::reserved, "--max-reserved", "Peak of the framework allocator's segments"},
    {BudgetFigure::allocated, "--max-allocated", "Peak of its blocks"},
    {BudgetFigure::driver, "--max-driver", "Peak of device memory held by CUDA's calls"},
    {BudgetFigure::pinned, "--max-pinned", "Peak of page-locked host memory"},
};

struct BudgetOptions {
  std::string path;
  std::string sizes[std::size(kSizeOptions)];
  std::string fragmentation;
  std::optional<uint64_t> ooms;
  std::string baseline;
  std::string tolerance = "1%";
  bool json = false;
};

// "10%" or "0.1".
Result<double> parse_share(const std::string& text, const char* option) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  const bool percent = parsed.ptr != end && *parsed.ptr == '%';
  if (parsed.ec != std::errc() || parsed.ptr + (percent ? 1 : 0) != end || !(value >= 0) ||
      value > (percent ? 100.0 : 1.0)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: '{}' is no share; write 10% or 0.1", option, text)};
  }
  return percent ? value / 100.0 : value;
}

Result<std::vector<diagnose::Limit>> parse_limits(const BudgetOptions& options) {
  std::vector<diagnose::Limit> limits;
  for (size_t i = 0; i < std::size(kSizeOptions); ++i) {
    if (options.sizes[i].empty()) continue;
    const auto bytes = parse_size(options.sizes[i]);
    if (!bytes.ok()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}: {}", kSizeOptions[i].name, bytes.error().text)};
    }
    limits.push_back({kSizeOptions[i].figure, static_cast<double>(*bytes)});
  }
  if (!options.fragmentation.empty()) {
    const auto share = parse_share(options.fragmentation, "--max-fragmentation");
    if (!share.ok()) return share.error();
    limits.push_back({BudgetFigure::fragmentation, *share});
  }
  if (options.ooms) limits.push_back({BudgetFigure::ooms, static_cast<double>(*options.ooms)});
  return limits;
}

struct Measured {
  diagnose::RunFigures figures;
  std::vector<std::string> gaps;  // why the figures may be too low, a line each
};

// Errors: the run cannot be read, or holds nothing.
Result<Measured> measure(const std::string& path) {
  auto run = open_run(path);
  if (!run.ok()) return run.error();
  Measured measured;
  std::vector<metrics::ProcessMetrics> processes;
  measure_run(*run, [&](MeasuredProcess&& process) {
    for (const std::string& line : gaps_of(process.reader)) {
      measured.gaps.push_back(path + ": " + line);
    }
    processes.push_back(std::move(process.measured));
  });
  for (const std::string& warning : run->warnings) measured.gaps.push_back(warning);
  measured.figures = diagnose::run_figures(processes);
  return measured;
}

std::string value_text(BudgetFigure figure, double value) {
  if (figure == BudgetFigure::fragmentation) return fmt::format("{:.2f} %", value * 100.0);
  if (figure == BudgetFigure::ooms) return fmt::format("{:.0f}", value);
  return format_size(static_cast<uint64_t>(value));
}

std::string check_text(const BudgetCheck& check) {
  std::string text = fmt::format("{:<9} {:<16} ", check.kept ? "ok" : "exceeded",
                                 diagnose::budget_figure_name(check.figure));
  if (!check.value) {
    text.replace(0, 8, "unknown ");
    return text + fmt::format("at most {}, and the run does not tell it",
                              value_text(check.figure, check.limit));
  }
  text += fmt::format("{}, at most {}", value_text(check.figure, check.value->value),
                      value_text(check.figure, check.limit));
  if (check.baseline) text += ", baseline " + value_text(check.figure, *check.baseline);
  text += fmt::format("  (process {}", pid_text(check.value->pid));
  if (check.value->device) text += fmt::format(", device {}", *check.value->device);
  return text + ")";
}

Json number(BudgetFigure figure, double value) {
  if (figure == BudgetFigure::fragmentation) return value;
  return static_cast<uint64_t>(value);
}

Json check_json(const BudgetCheck& check) {
  Json out = {{"figure", diagnose::budget_figure_name(check.figure)}, {"value", nullptr}};
  if (check.value) out["value"] = number(check.figure, check.value->value);
  out["limit"] = number(check.figure, check.limit);
  out["baseline"] = check.baseline ? number(check.figure, *check.baseline) : Json(nullptr);
  out["kept"] = check.kept;
  const bool has_pid = check.value && check.value->pid != 0;  // a snapshot names none
  out["pid"] = has_pid ? Json(check.value->pid) : Json(nullptr);
  const bool of_device = check.value && check.value->device;
  out["device"] = of_device ? Json(*check.value->device) : Json(nullptr);
  return out;
}

int print_checks(const BudgetOptions& options, const std::vector<BudgetCheck>& checks,
                 const std::vector<std::string>& gaps) {
  bool kept = gaps.empty();
  for (const BudgetCheck& check : checks) kept = kept && check.kept;
  std::string out;
  if (options.json) {
    Json list = Json::array();
    for (const BudgetCheck& check : checks) list.push_back(check_json(check));
    const Json all = {{"schema", 1}, {"kept", kept}, {"checks", list}, {"gaps", gaps}};
    out = document_text(all);
  } else {
    for (const BudgetCheck& check : checks) out += check_text(check) + "\n";
    for (const std::string& gap : gaps) {
      out += "incomplete  " + one_line(gap) + ": figures may be too low\n";
    }
  }
  const int written = print_output(out);
  if (written != kExitOk) return written;
  return kept ? kExitOk : kExitNo;
}

int check_budget(const BudgetOptions& options) {
  const auto limits = parse_limits(options);
  if (!limits.ok()) return fail(limits.error());
  const auto tolerance = parse_share(options.tolerance, "--tolerance");
  if (!tolerance.ok()) return fail(tolerance.error());
  if (limits->empty() && options.baseline.empty()) {
    return fail("nothing to check: give a limit (--max-reserved 11GiB, …) or --baseline RUN",
                kExitUsage);
  }
  auto measured = measure(options.path);
  if (!measured.ok()) return fail(measured.error());
  std::vector<BudgetCheck> checks = diagnose::check_limits(measured->figures, *limits);
  if (!options.baseline.empty()) {
    const auto before = measure(options.baseline);
    if (!before.ok()) return fail(before.error());
    const auto more = diagnose::check_regression(measured->figures, before->figures, *tolerance);
    if (more.empty()) {
      return fail(fmt::format("{} and {} have no figure in common", options.path, options.baseline),
                  kExitInput);
    }
    checks.insert(checks.end(), more.begin(), more.end());
    measured->gaps.insert(measured->gaps.end(), before->gaps.begin(), before->gaps.end());
  }
  return print_checks(options, checks, measured->gaps);
}

}  // namespace

void add_check_budget_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand(
      "check-budget", "Fail when a run exceeds limits or is worse than an earlier run");
  const auto options = std::make_shared<BudgetOptions>();
  command->add_option("RUN", options->path, "Run directory, trace file or text trace")->required();
  for (size_t i = 0; i < std::size(kSizeOptions); ++i) {
    command->add_option(kSizeOptions[i].name, options->sizes[i], kSizeOptions[i].help);
  }
  command->add_option("--max-fragmentation", options->fragmentation,
                      "1 - peak allocated / peak reserved, e.g. 10%");
  command->add_option("--max-ooms", options->ooms, "Requests that the allocator gave up on")
      ->check(whole_number);
  command->add_option("--baseline", options->baseline, "An earlier run; each figure must not grow");
  command
      ->add_option("--tolerance", options->tolerance, "Growth over the baseline that is let pass")
      ->capture_default_str();
  command->add_flag("--json", options->json, "As JSON");
  command->footer(
      "Each figure is the largest over processes and devices. Exit code: 0 kept, 1 not kept or\n"
      "unknown, 2 usage, 3 a run cannot be read.");
  command->callback([options, &context] { context.exit_code = check_budget(*options); });
}

}  // namespace fragscope::tools
