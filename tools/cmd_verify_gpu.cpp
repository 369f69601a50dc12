// fragscope verify-gpu: the same command on this machine's card and on its simulated twin, or two
// such recordings: are the requests and the peaks the same, and how large is what is assumed?
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/bytes.h"
#include "diagnose/twin.h"
#include "simcuda/sim_config.h"
#include "tools/command.h"
#include "tools/json_text.h"
#include "tools/run_analysis.h"
#include "tools/run_plan.h"
#include "tools/subprocess.h"
#include "trace/run_directory.h"

namespace fragscope::tools {
namespace {

namespace fs = std::filesystem;
using diagnose::TwinComparison;
using diagnose::TwinDevice;
using diagnose::TwinFigure;

struct VerifyOptions {
  std::vector<std::string> runs;  // two, to be compared
  std::string gpu;
  std::string output;
  bool json = false;
  std::vector<std::string> command;
};

struct SideProcess {
  uint32_t pid = 0;
  std::string program;
  replay::RecordedProcess recorded;
  metrics::ProcessMetrics measured;
};

struct Side {
  std::string path;
  bool simulated = false;
  std::vector<SideProcess> processes;  // in the order of their start
  std::vector<std::string> gaps;       // why its figures may be too low, a line each
};

// Errors: cannot be read.
Result<Side> read_side(const std::string& path) {
  auto run = open_run(path);
  if (!run.ok()) return run.error();
  Side side{path, false, {}, run->warnings};
  measure_run(*run, [&](MeasuredProcess&& each) {
    SideProcess process{each.facts.pid, each.facts.program, {}, std::move(each.measured)};
    replay::ReadSettings settings;
    settings.with_calls = settings.with_seqs = true;
    each.events.rewind();
    process.recorded = replay::read_process(each.events, each.facts, settings);
    for (const auto& [ordinal, device] : process.measured.devices) {
      side.simulated = side.simulated || device.facts.simulated.value_or(false);
    }
    for (const std::string& line : gaps_of(each.reader)) side.gaps.push_back(line);
    side.processes.push_back(std::move(process));
  });
  if (!side.processes.empty()) return side;
  return Error{ErrorCode::kNotFound, path + ": no process in it used CUDA"};
}

struct DeviceComparison {
  size_t process = 0;
  int32_t device = 0;
  TwinComparison comparison;
};

struct Answer {
  const Side& real;
  const Side& twin;
  std::vector<DeviceComparison> devices;

  bool equal() const {
    const auto same = [](const DeviceComparison& each) { return each.comparison.equal(); };
    return real.processes.size() == twin.processes.size() && real.gaps.empty() &&
           twin.gaps.empty() && std::all_of(devices.begin(), devices.end(), same);
  }
};

// What the two sides are called: the first is a real card's run only if its recording says so.
struct SideWords {
  const char* first;
  const char* second;
};

SideWords words_of(const Answer& answer) {
  return answer.real.simulated ? SideWords{"first", "second"} : SideWords{"real", "twin"};
}

TwinDevice device_of(const Side& side, size_t process, int32_t ordinal) {
  TwinDevice result;
  if (process >= side.processes.size()) return result;
  const SideProcess& from = side.processes[process];
  for (const replay::RecordedDevice& device : from.recorded.devices) {
    if (device.device == ordinal) result.recorded = &device;
  }
  const auto measured = from.measured.devices.find(ordinal);
  if (measured != from.measured.devices.end()) result.measured = &measured->second;
  return result;
}

Answer compare(const Side& real, const Side& twin) {
  Answer answer{real, twin, {}};
  const size_t processes = std::max(real.processes.size(), twin.processes.size());
  for (size_t process = 0; process < processes; ++process) {
    std::vector<int32_t> ordinals;
    for (const Side* side : {&real, &twin}) {
      if (process >= side->processes.size()) continue;
      for (const auto& [ordinal, device] : side->processes[process].measured.devices) {
        if (ordinal >= 0) ordinals.push_back(ordinal);
      }
    }
    std::sort(ordinals.begin(), ordinals.end());
    ordinals.erase(std::unique(ordinals.begin(), ordinals.end()), ordinals.end());
    for (const int32_t ordinal : ordinals) {
      answer.devices.push_back({process, ordinal,
                                diagnose::compare_twins(device_of(real, process, ordinal),
                                                        device_of(twin, process, ordinal))});
    }
  }
  return answer;
}

bool is_count(const TwinFigure& figure) {
  const std::string_view name = figure.name;
  return name == "segments peak" || name == "refused requests";
}

std::string value_text(const TwinFigure& figure, const std::optional<uint64_t>& value) {
  if (!value) return "unknown";
  return is_count(figure) ? std::to_string(*value) : format_size(*value);
}

std::string difference_text(const TwinFigure& figure) {
  if (!figure.real || !figure.twin) return "";
  if (!figure.differs()) return "equal";
  const bool more = *figure.twin > *figure.real;
  const uint64_t by = more ? *figure.twin - *figure.real : *figure.real - *figure.twin;
  const std::string share =
      *figure.real == 0
          ? ""
          : fmt::format(" ({:+.2f} %)", (more ? 100.0 : -100.0) * static_cast<double>(by) /
                                            static_cast<double>(*figure.real));
  return fmt::format("{}{}{}", more ? "+" : "-",
                     is_count(figure) ? std::to_string(by) : format_size(by), share);
}

std::string device_text(const Answer& answer, const DeviceComparison& each) {
  const auto& requests = each.comparison.requests;
  const Side& named = each.process < answer.real.processes.size() ? answer.real : answer.twin;
  const auto [first, second] = words_of(answer);
  std::string text = fmt::format(
      "Process {} ({}), device {}\n  requests  {} {}, {} {}; equal from the first on: {}\n",
      each.process + 1, one_line(named.processes[each.process].program), each.device, first,
      requests.real, second, requests.twin, requests.equal);
  if (requests.first) {
    text += fmt::format(
        "    the first that differs: {} {}{}, {} {}{}\n", first, requests.first->real,
        requests.first->real_seq ? fmt::format(" (event {})", *requests.first->real_seq) : "",
        second, requests.first->twin,
        requests.first->twin_seq ? fmt::format(" (event {})", *requests.first->twin_seq) : "");
  }
  text += fmt::format("  {:<28} {:>14} {:>14}  {} against {}\n", "", first, second, second, first);
  for (const bool exact : {true, false}) {
    for (const TwinFigure& figure : each.comparison.figures) {
      if (figure.exact != exact) continue;
      text += fmt::format("  {:<28} {:>14} {:>14}  {}{}\n", figure.name,
                          value_text(figure, figure.real), value_text(figure, figure.twin),
                          difference_text(figure), exact ? "" : "  (assumed)");
    }
  }
  return text;
}

std::string answer_text(const Answer& answer) {
  const auto [first, second] = words_of(answer);
  std::string text = fmt::format("{:<7} {}\n{:<7} {}\n", first, one_line(answer.real.path), second,
                                 one_line(answer.twin.path));
  if (answer.real.simulated) {
    text += fmt::format(
        "The first run is of a simulated device{}: nothing here was compared with a real card.\n",
        answer.twin.simulated ? ", like the second" : "");
  }
  if (answer.real.processes.size() != answer.twin.processes.size()) {
    text += fmt::format("The {} run has {} process(es) that used CUDA, the {} one {}.\n", first,
                        answer.real.processes.size(), second, answer.twin.processes.size());
  }
  for (const DeviceComparison& each : answer.devices) text += "\n" + device_text(answer, each);
  for (const Side* side : {&answer.real, &answer.twin}) {
    for (const std::string& gap : side->gaps) text += "incomplete  " + one_line(gap) + "\n";
  }
  text += answer.equal() ? "\nEqual: every request, and every figure that is exact.\n"
                         : "\nNot equal.\n";
  return text;
}

Json device_json(const DeviceComparison& each) {
  const auto& requests = each.comparison.requests;
  Json first = nullptr;
  if (requests.first) {
    first = {{"index", requests.equal},
             {"real", requests.first->real},
             {"twin", requests.first->twin},
             {"real_seq", or_null(requests.first->real_seq)},
             {"twin_seq", or_null(requests.first->twin_seq)}};
  }
  Json figures = Json::array();
  for (const TwinFigure& figure : each.comparison.figures) {
    figures.push_back({{"name", figure.name},
                       {"exact", figure.exact},
                       {"real", or_null(figure.real)},
                       {"twin", or_null(figure.twin)}});
  }
  return {
      {"process", each.process},
      {"device", each.device},
      {"equal", each.comparison.equal()},
      {"requests", {{"real", requests.real}, {"twin", requests.twin}, {"equal", requests.equal}}},
      {"first_difference", first},
      {"figures", figures}};
}

Json answer_json(const Answer& answer) {
  Json devices = Json::array();
  for (const DeviceComparison& each : answer.devices) devices.push_back(device_json(each));
  const auto side = [](const Side& from) {
    return Json{{"path", from.path},
                {"simulated", from.simulated},
                {"processes", from.processes.size()},
                {"gaps", from.gaps}};
  };
  return {{"schema", 1},
          {"equal", answer.equal()},
          {"real", side(answer.real)},
          {"twin", side(answer.twin)},
          {"devices", devices}};
}

int compare_runs(const VerifyOptions& options, const std::string& real, const std::string& twin) {
  const auto left = read_side(real);
  if (!left.ok()) return fail(left.error());
  const auto right = read_side(twin);
  if (!right.ok()) return fail(right.error());
  const Answer answer = compare(*left, *right);
  const int written =
      print_output(options.json ? document_text(answer_json(answer)) : answer_text(answer));
  if (written != kExitOk) return written;
  return answer.equal() ? kExitOk : kExitNo;
}

// The preset of that name, else the size; nothing: the recording names no device.
std::string twin_of(const Side& real) {
  for (const SideProcess& process : real.processes) {
    for (const auto& [ordinal, device] : process.measured.devices) {
      if (!device.facts.total_bytes) continue;
      for (const simcuda::GpuPreset& preset : simcuda::gpu_presets()) {
        if (device.facts.name == preset.name) return preset.id;
      }
      return std::to_string(*device.facts.total_bytes);
    }
  }
  return {};
}

// Records the command; an error is a line for the user.
Status record(const VerifyOptions& options, const std::string& output,
              const std::vector<std::string>& more) {
  std::vector<std::string> argv = {fs::read_symlink("/proc/self/exe").string(), "run", "-q", "-o",
                                   output};
  argv.insert(argv.end(), more.begin(), more.end());
  argv.push_back("--");
  argv.insert(argv.end(), options.command.begin(), options.command.end());
  const auto finished = run_helper(argv, own_environment());
  if (!finished.ok()) return finished.error();
  if (finished->exit_code >= kExitRunFailed && finished->exit_code <= kExitNotFound) {
    return Error{ErrorCode::kInternal, "the command did not run: " + first_line(finished->err)};
  }
  if (finished->exit_code != 0) {
    say(fmt::format("{}: the command ended with exit code {}", output, finished->exit_code));
  }
  return Done{};
}

int run_both(const VerifyOptions& options) {
  if (const auto reason = why_no_gpu_driver()) {
    return fail(fmt::format("verify-gpu: skipped, no NVIDIA driver here ({}); record on a machine "
                            "with a card and compare: fragscope verify-gpu REAL.fsr TWIN.fsr",
                            *reason),
                kExitNo);
  }
  const std::string directory =
      !options.output.empty() ? options.output : fmt::format("fragscope-twins-{}", ::getpid());
  const Status created = trace::create_run_directory(directory);
  if (!created.ok()) return fail(created.error(), kExitOutput);
  const std::string real = directory + "/real.fsr";
  const std::string twin = directory + "/twin.fsr";
  say("on this machine's card …");
  if (const Status done = record(options, real, {}); !done.ok()) return fail(done.error());
  const auto side = read_side(real);
  if (!side.ok()) return fail(side.error());
  const std::string gpu = !options.gpu.empty() ? options.gpu : twin_of(*side);
  if (gpu.empty()) return fail("the recording names no device; name the twin: --gpu", kExitUsage);
  say(fmt::format("on its twin, --gpu {} …", gpu));
  if (const Status done = record(options, twin, {"--gpu", gpu}); !done.ok()) {
    return fail(done.error());
  }
  return compare_runs(options, real, twin);
}

int verify_gpu(const VerifyOptions& options) {
  if (!options.command.empty()) {
    if (options.runs.empty()) return run_both(options);
    return fail("verify-gpu: either two recordings or -- COMMAND, not both", kExitUsage);
  }
  if (options.runs.size() != 2) {
    return fail("verify-gpu: give -- COMMAND, or two recordings: REAL.fsr TWIN.fsr", kExitUsage);
  }
  return compare_runs(options, options.runs[0], options.runs[1]);
}

}  // namespace

void add_verify_gpu_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand(
      "verify-gpu", "Compare a command on this machine's card with its simulated twin");
  const auto options = std::make_shared<VerifyOptions>();
  command->add_option("RUNS", options->runs, "Two recordings of one command: real, twin")
      ->expected(0, 2);
  command->add_option("--gpu", options->gpu, "The twin (default: the preset of the card's name)");
  command->add_option("-o,--output", options->output, "Directory to create for the recordings");
  command->add_flag("--json", options->json, "As JSON");
  command->footer(
      "Usage: fragscope verify-gpu [OPTIONS] -- COMMAND [ARGUMENTS]\n"
      "       fragscope verify-gpu [--json] REAL.fsr TWIN.fsr\n"
      "Exit code: 0 equal, 1 not equal or no card here, 2 usage, 3 a recording cannot be read.");
  command->callback([options, &context] {
    options->command = context.command_line;
    context.exit_code = verify_gpu(*options);
  });
}

}  // namespace fragscope::tools
