// fragscope ctl: asks something of a process that is being recorded.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "log/log_control.h"
#include "tools/command.h"
#include "tools/recorded_process.h"

namespace fragscope::tools {
namespace {

struct CtlOptions {
  uint32_t pid = 0;
  std::string text;
  std::string log_path;  // of the process, once found
};

int with_log(const CtlOptions& options, int (*act)(log::LogControl&, const CtlOptions&)) {
  const auto path = find_log_of(options.pid);
  if (!path) return fail(path.error());
  auto control = log::LogControl::open(*path);
  if (!control) return fail(control.error());
  CtlOptions own = options;
  own.log_path = *path;
  return act(*control, own);
}

int start(log::LogControl& control, const CtlOptions& options) {
  if (!control.set_paused(false)) {
    fmt::print("process {} is being recorded already\n", options.pid);
    return kExitOk;
  }
  const uint64_t skipped = control.skipped_events();
  // In the trace, so that a reader sees the gap. One that waits already says enough.
  static_cast<void>(control.request_mark(
      fmt::format("fragscope: recording goes on; {} events in all were not recorded", skipped)));
  fmt::print("process {} is recorded again; {} events were not recorded\n", options.pid, skipped);
  return kExitOk;
}

int stop(log::LogControl& control, const CtlOptions& options) {
  const bool was_paused = control.set_paused(true);
  fmt::print(
      "process {} {}\n", options.pid,
      was_paused ? "was not recorded anyway" : "is not recorded until `fragscope ctl start`");
  return kExitOk;
}

int mark(log::LogControl& control, const CtlOptions& options) {
  const Status asked = control.request_mark(options.text);
  if (!asked) return fail(fmt::format("process {}: {}", options.pid, asked.error().text), kExitNo);
  fmt::print("the mark comes with the next event of process {}\n", options.pid);
  return kExitOk;
}

// Without a collector the log is a file that readers read as it is: nothing is held back.
int flush(log::LogControl& control, const CtlOptions& options) {
  constexpr std::chrono::milliseconds kStep{10};
  constexpr int kMostSteps = 1000;
  constexpr int kStepsToBegin = 100;
  // `fragscope run` takes a log up a moment after it begins; a plain preload's stays alone.
  const auto directory = std::filesystem::path(options.log_path).parent_path();
  std::error_code ignored;
  const bool alone =
      directory.extension() == ".fsr" && !std::filesystem::exists(directory / "run.json", ignored);
  for (int step = 0; !alone && !control.has_collector() && step < kStepsToBegin; ++step) {
    std::this_thread::sleep_for(kStep);
  }
  if (!control.has_collector()) {
    fmt::print("process {} has no collector: its log can be read as it is\n", options.pid);
    return kExitOk;
  }
  const uint64_t number = control.request_flush();
  for (int step = 0; step < kMostSteps; ++step) {
    if (control.flush_done() >= number) {
      fmt::print("all that process {} has recorded is in its trace file\n", options.pid);
      return kExitOk;
    }
    std::this_thread::sleep_for(kStep);
  }
  return fail(fmt::format("process {}: its collector did not answer", options.pid), kExitNo);
}

// max_split_size_mb=128 as max_split_size_mb:128: PyTorch's grammar is taken as it is.
std::string settings_text(const std::string& given) {
  if (given.find(':') != std::string::npos) return given;
  std::string text = given;
  std::replace(text.begin(), text.end(), '=', ':');
  return text;
}

bool has_torch(uint32_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/libc10_cuda.so") != std::string::npos) return true;
  }
  return false;
}

int refuse_settings(const CtlOptions& options, log::Enforcement who, const std::string& text) {
  if (who == log::Enforcement::native || has_torch(options.pid)) {
    return fail(
        fmt::format("process {} serves itself with PyTorch's own allocator, whose settings only it "
                    "can change safely: let the program call "
                    "torch.cuda.memory._set_allocator_settings(\"{}\"), or "
                    "fragscope.torch.enable() before its first CUDA tensor, then `ctl set` works",
                    options.pid, text),
        kExitNo);
  }
  return fail(fmt::format("process {} does not enforce settings: start it with `fragscope run "
                          "--max-split-size-mb N`",
                          options.pid),
              kExitNo);
}

// The process answers with its next allocation.
int set(log::LogControl& control, const CtlOptions& options) {
  constexpr std::chrono::milliseconds kStep{5};
  constexpr int kMostSteps = 2000;
  const std::string text = settings_text(options.text);
  if (text.empty())
    return fail("no settings given: max_split_size_mb=128, for instance", kExitUsage);
  const log::Enforcement who = control.enforcement();
  if (who != log::Enforcement::shim && who != log::Enforcement::pluggable) {
    return refuse_settings(options, who, text);
  }
  const auto number = control.request_settings(text);
  if (!number) {
    return fail(fmt::format("process {}: {}", options.pid, number.error().text), kExitNo);
  }
  for (int step = 0; step < kMostSteps; ++step) {
    if (const auto answer = control.settings_answer(*number)) {
      if (answer->replaced) {
        return fail(fmt::format("process {}: {} was taken, and replaced by a later request",
                                options.pid, text),
                    kExitNo);
      }
      if (!answer->accepted) {
        return fail(fmt::format("process {}: {}", options.pid, answer->text), kExitNo);
      }
      fmt::print("process {} allocates with {} from now on\n", options.pid, text);
      return kExitOk;
    }
    std::this_thread::sleep_for(kStep);
  }
  fmt::print("process {} has allocated nothing since: its next allocation takes {}\n", options.pid,
             text);
  return kExitOk;
}

// Given as PID SETTINGS, like the other requests, or the other way round.
int set_in_any_order(CtlOptions options, const std::string& first, const std::string& second) {
  const auto is_pid = [&options](const std::string& text) {
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, options.pid);
    return error == std::errc() && stop == end;
  };
  const bool in_order = is_pid(first);
  if (!in_order && !is_pid(second)) {
    return fail("give the PID of a process that is being recorded and its settings", kExitUsage);
  }
  options.text = in_order ? second : first;
  return with_log(options, set);
}

CLI::App* add(CLI::App& parent, const char* name, const char* help, CommandContext& context,
              const std::shared_ptr<CtlOptions>& options,
              int (*act)(log::LogControl&, const CtlOptions&)) {
  CLI::App* command = parent.add_subcommand(name, help);
  command->add_option("PID", options->pid, "A process that is being recorded")->required();
  command->callback([options, act, &context] { context.exit_code = with_log(*options, act); });
  return command;
}

}  // namespace

void add_ctl_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("ctl", "Ask something of a process that is recorded");
  command->require_subcommand(1);
  const auto options = std::make_shared<CtlOptions>();
  add(*command, "stop", "Record nothing until `start`", context, options, stop);
  add(*command, "start", "Record again", context, options, start);
  add(*command, "mark", "Put a mark into the recording", context, options, mark)
      ->add_option("TEXT", options->text, "What the mark says")
      ->required();
  CLI::App* const settings = command->add_subcommand(
      "set", "Change allocator settings, where the shim or libfragscope_alloc.so serves");
  const auto given = std::make_shared<std::pair<std::string, std::string>>();
  settings->add_option("PID", given->first, "A process that is being recorded")->required();
  settings->add_option("SETTINGS", given->second, "max_split_size_mb=128, or PyTorch's KEY:VALUE,…")
      ->required();
  settings->callback([options, given, &context] {
    context.exit_code = set_in_any_order(*options, given->first, given->second);
  });
  add(*command, "flush", "Wait until all that is recorded is in the trace file", context, options,
      flush);
}

}  // namespace fragscope::tools
