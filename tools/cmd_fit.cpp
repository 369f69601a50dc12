// fragscope fit: which card, which settings, up to which value does a command fit?
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "base/bytes.h"
#include "tools/command.h"
#include "tools/fit_search.h"
#include "tools/json_text.h"
#include "tools/run_analysis.h"
#include "trace/run_directory.h"

namespace fragscope::tools {
namespace {

struct FitOptions {
  std::string vary;
  std::vector<std::string> gpus;
  std::vector<std::string> settings;
  std::string output;
  bool json = false;
  bool quiet = false;
  std::vector<std::string> command;
};

Json cell_json(const FitCell& cell) {
  return {{"value", cell.value},
          {"fits", cell.fits},
          {"by", cell.replayed ? "replay" : "run"},
          {"exit_code", cell.exit_code},
          {"ooms", cell.ooms},
          {"first_oom_seq", or_null(cell.first_oom)},
          {"peak_bytes", or_null(cell.peak)},
          {"capacity_bytes", or_null(cell.capacity)},
          {"recording", cell.recording}};
}

Json answer_json(const FitAnswer& answer) {
  Json rows = Json::array();
  for (const FitRow& row : answer.rows) {
    Json cells = Json::array();
    for (const FitCell& cell : row.cells) cells.push_back(cell_json(cell));
    rows.push_back({{"gpu", row.gpu},
                    {"total_bytes", row.total_bytes},
                    {"alloc_conf", row.settings},
                    {"largest", row.largest ? cell_json(*row.largest) : Json(nullptr)},
                    {"cells", cells}});
  }
  return {{"schema", 1}, {"runs", answer.runs}, {"replays", answer.replays}, {"rows", rows}};
}

std::string headroom(const FitCell& cell) {
  if (!cell.peak || !cell.capacity) return "unknown";
  return format_size(*cell.capacity - std::min(*cell.capacity, *cell.peak));
}

// What happens one value further.
std::string beyond(const FitRow& row) {
  for (const FitCell& cell : row.cells) {
    if (cell.fits) continue;
    std::string text = cell.value.empty() ? "" : cell.value + ": ";
    text += cell.ooms > 0 ? "out of memory" : fmt::format("exit code {}", cell.exit_code);
    if (cell.first_oom) text += fmt::format(" at event {}", *cell.first_oom);
    return text + (cell.replayed ? " (replayed)" : " (run)");
  }
  return "";
}

std::string answer_text(const FitAnswer& answer, const std::string& name) {
  std::string text = fmt::format("{:<20} {:>12}  {:<28} {:>10} {:>12} {:>12}  {:<8} {}\n", "card",
                                 "total", "settings", name.empty() ? "fits" : "max " + name, "peak",
                                 "headroom", "by", "beyond");
  for (const FitRow& row : answer.rows) {
    const std::string value = !row.largest ? "none" : name.empty() ? "yes" : row.largest->value;
    text += fmt::format("{:<20} {:>12}  {:<28} {:>10} {:>12} {:>12}  {:<8} {}\n", row.gpu,
                        format_size(row.total_bytes),
                        row.settings.empty() ? "(the program's own)" : row.settings, value,
                        row.largest && row.largest->peak ? format_size(*row.largest->peak) : "",
                        row.largest ? headroom(*row.largest) : "",
                        !row.largest            ? ""
                        : row.largest->replayed ? "replay"
                                                : "run",
                        beyond(row));
  }
  text += fmt::format(
      "\n{} runs, {} replays. Simulated: requests and the allocator's answers are exact, "
      "workspaces "
      "of libraries, context sizes and shapes that depend on data are assumed. A replay takes the "
      "program to ask for the same on every card of its compute capability.\n",
      answer.runs, answer.replays);
  return text;
}

int run_fit(const FitOptions& options) {
  FitQuestion question;
  if (options.command.empty()) {
    return fail("no command given: fragscope fit [options] -- COMMAND [arguments]", kExitUsage);
  }
  question.command = options.command;
  if (!options.vary.empty()) {
    auto variable = parse_variable(options.vary);
    if (!variable.ok()) return fail(variable.error());
    question.variable = std::move(variable).value();
    const auto words = with_value(options.command, question.variable->name, "");
    if (!words.ok()) return fail(words.error());
  }
  question.gpus = options.gpus;
  if (question.gpus.empty()) {
    for (const simcuda::GpuPreset& gpu : simcuda::gpu_presets()) question.gpus.push_back(gpu.id);
  }
  question.settings = options.settings;
  question.settings.insert(question.settings.begin(), "");
  const std::filesystem::path program(options.command[0]);
  question.directory =
      !options.output.empty()
          ? options.output
          : fmt::format("fragscope-fit-{}-{}", program.filename().string(), ::getpid());
  const Status created = trace::create_run_directory(question.directory);
  if (!created.ok()) return fail(created.error(), kExitOutput);
  const auto answer = search_fit(question, [&](const std::string& line) {
    if (!options.quiet) say(line);
  });
  std::error_code ignored;
  std::filesystem::remove(question.directory, ignored);  // if nothing was recorded
  if (!answer.ok()) return fail(answer.error());
  if (options.output.empty() && !options.quiet) {
    say("the recordings are in " + question.directory + " (-o DIRECTORY: elsewhere)");
  }
  const std::string name = question.variable ? question.variable->name : "";
  const int written =
      print_output(options.json ? document_text(answer_json(*answer)) : answer_text(*answer, name));
  if (written != kExitOk) return written;
  const bool any = std::any_of(answer->rows.begin(), answer->rows.end(),
                               [](const FitRow& row) { return row.largest.has_value(); });
  return any ? kExitOk : kExitNo;
}

}  // namespace

void add_fit_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand(
      "fit", "Find the cards, settings and sizes that a command fits, on simulated GPUs");
  const auto options = std::make_shared<FitOptions>();
  command->add_option("--vary", options->vary,
                      "NAME=1..256 or NAME=8,16,32: {NAME} in the command takes these values");
  command->add_option("--gpus", options->gpus, "Presets or sizes (default: every preset)")
      ->delimiter(',');
  command->add_option("--alloc-conf", options->settings,
                      "Also under these settings (PyTorch's grammar); may be repeated");
  command->add_option("-o,--output", options->output, "Directory to create for the recordings");
  command->add_flag("-q,--quiet", options->quiet, "No line for each run");
  command->add_flag("--json", options->json, "As JSON");
  command->footer(
      "Usage: fragscope fit [OPTIONS] -- COMMAND [ARGUMENTS]\n"
      "Exit code: 0 something fits, 1 nothing does, 2 usage.");
  command->callback([options, &context] {
    options->command = context.command_line;
    context.exit_code = run_fit(*options);
  });
}

}  // namespace fragscope::tools
