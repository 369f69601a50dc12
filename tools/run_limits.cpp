#include "tools/run_limits.h"

#include <CLI/CLI.hpp>

namespace fragscope::tools {
namespace {

struct Row {
  const char* option;
  std::string LimitOptions::*value;
  const char* variable;
  const char* note;
  const char* help;
};

constexpr Row kRows[] = {
    {"--memory-limit", &LimitOptions::memory, "FRAGSCOPE_MEMORY_LIMIT", "limit.memory",
     "Device memory that the program may allocate on each device, e.g. 12GiB"},
    {"--pinned-limit", &LimitOptions::pinned, "FRAGSCOPE_PINNED_LIMIT", "limit.pinned",
     "Pinned host memory that it may have"},
    {"--memory-limit-scope", &LimitOptions::scope, "FRAGSCOPE_MEMORY_LIMIT_SCOPE", "limit.scope",
     "Whose memory the limits count: process (each by itself), run (all together)"},
    {"--oom-at", &LimitOptions::oom_at, "FRAGSCOPE_OOM_AT", "limit.oom_at",
     "Fail device allocation calls: N, N-M or N+ (from 1, in each process)"},
    {"--fail-rate", &LimitOptions::fail_rate, "FRAGSCOPE_FAIL_RATE", "limit.fail_rate",
     "Fail device allocation calls with this probability: P or P:SEED"},
    {"--warn-at", &LimitOptions::warn_at, "FRAGSCOPE_WARN_AT", "limit.warn_at",
     "Say when a process holds this much of a device: a size, or e.g. 90%"},
    {"--on-oom", &LimitOptions::on_oom, "FRAGSCOPE_ON_OOM", "limit.on_oom",
     "When memory runs out, before the program learns of it: dump, signal[:NAME], pause, report"},
};

// Of the environment that is being checked; read_limits() takes a plain function.
const Environment* g_checked = nullptr;
std::string g_value;
const char* checked_variable(const char* name) {
  const auto value = get_variable(*g_checked, name);
  if (!value) return nullptr;
  g_value = *value;
  return g_value.c_str();
}

// The text names a variable; the user gave an option.
std::string with_option(std::string text, const LimitOptions& options) {
  for (const Row& row : kRows) {
    const std::string variable = std::string(row.variable) + ":";
    if ((options.*row.value).empty() || !text.starts_with(variable)) continue;
    return row.option + text.substr(variable.size() - 1);
  }
  return text;
}

}  // namespace

void add_limit_options(CLI::App& command, LimitOptions& options) {
  const auto not_empty = [](const std::string& text) {
    return text.empty() ? std::string("must not be empty") : std::string();
  };
  for (const Row& row : kRows) {
    command.add_option(row.option, options.*row.value, row.help)->check(not_empty);
  }
}

std::string first_limit_option(const LimitOptions& options) {
  for (const Row& row : kRows) {
    if (!(options.*row.value).empty()) return row.option;
  }
  return "";
}

Result<enforce::Limits> settle_limits(const LimitOptions& options, Environment& environment,
                                      std::map<std::string, std::string>& notes) {
  for (const Row& row : kRows) {
    const std::string& value = options.*row.value;
    if (!value.empty()) set_variable(environment, row.variable, value);
  }
  const bool of_run = get_variable(environment, "FRAGSCOPE_MEMORY_LIMIT_SCOPE") == "run";
  // The place of a run's account is settled with the places of its logs.
  Environment checked = environment;
  if (of_run) set_variable(checked, "FRAGSCOPE_MEMORY_ACCOUNT", "in the run's own place");
  g_checked = &checked;
  Result<enforce::Limits> limits = enforce::read_limits(checked_variable);
  g_checked = nullptr;
  if (!limits) return Error{limits.error().code, with_option(limits.error().text, options)};
  if (!limits->device_bytes && !limits->pinned_bytes && !options.scope.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "--memory-limit-scope needs a limit: --memory-limit or --pinned-limit"};
  }
  for (const Row& row : kRows) {
    const auto value = get_variable(environment, row.variable);
    if (value && !value->empty()) notes[row.note] = *value;
  }
  return limits;
}

}  // namespace fragscope::tools
