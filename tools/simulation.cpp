#include "tools/simulation.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/bytes.h"
#include "simcuda/answer_names.h"
#include "simcuda/answers.h"
#include "simcuda/fault_script.h"

namespace fragscope::tools {
namespace {

using simcuda::Ledger;

std::string listed(Ledger& ledger, Ledger::Kind kind) {
  std::string text;
  for (const Ledger::Noted& row : ledger.noted(kind)) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", row.name, row.times);
    if (kind == Ledger::Kind::kAssumed) {
      text += fmt::format(" (0 to {})", format_size(row.largest));
    }
  }
  return text;
}

}  // namespace

std::string first_simulation_option(const RunOptions& options) {
  if (!options.sim_log.empty()) return "--sim-log";
  if (!options.sim_answers.empty()) return "--sim-answers";
  if (!options.sim_script.empty()) return "--sim-script";
  if (options.sim_kernel_us != 0) return "--sim-kernel-us";
  if (!options.gpu_used.empty()) return "--gpu-used";
  return "";
}

Status apply_simulation_options(const RunOptions& options, simcuda::SimConfig& gpu,
                                uint64_t& used_bytes) {
  if (!options.sim_answers.empty()) {
    simcuda::AnswerTable table;
    const Status added = simcuda::add_answers_of_file(table, options.sim_answers);
    if (!added.ok()) return added.error();
    std::error_code failed;
    gpu.answers = std::filesystem::absolute(options.sim_answers, failed);
  }
  if (!options.sim_script.empty()) {
    const auto faults = simcuda::read_faults(options.sim_script);
    if (!faults.ok()) return faults.error();
    std::error_code failed;
    gpu.script = std::filesystem::absolute(options.sim_script, failed);
  }
  gpu.kernel_us = options.sim_kernel_us;
  used_bytes = 0;
  if (options.gpu_used.empty()) return Done{};
  const auto bytes = parse_size(options.gpu_used);
  if (!bytes || *bytes >= gpu.total_bytes) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--gpu-used '{}' is not a size below the card's {}", options.gpu_used,
                             format_size(gpu.total_bytes))};
  }
  used_bytes = *bytes;
  return Done{};
}

std::vector<std::pair<std::string, std::string>> simulation_notes(Ledger& ledger) {
  std::vector<std::pair<std::string, std::string>> notes;
  const auto add = [&](const char* key, Ledger::Kind kind) {
    std::string text = listed(ledger, kind);
    if (!text.empty()) notes.emplace_back(key, std::move(text));
  };
  add("simulation.unsupported_calls", Ledger::Kind::kUnsupported);
  add("simulation.answered_values", Ledger::Kind::kAnswer);
  add("simulation.assumed_sizes", Ledger::Kind::kAssumed);
  for (const Ledger::Noted& row : ledger.noted(Ledger::Kind::kAssumed)) {
    if (row.name == simcuda::kPlanWorkspaceName) {
      notes.emplace_back(kWorkspaceNote, std::to_string(row.largest));
    } else if (row.name == simcuda::kWorkspaceRoomName) {
      notes.emplace_back(kWorkspaceRoomNote, std::to_string(row.largest));
    }
  }
  return notes;
}

std::string zeros_it_read(Ledger& ledger) {
  uint64_t reads = 0;
  for (const Ledger::Noted& row : ledger.noted(Ledger::Kind::kAnswer)) {
    if (row.name == simcuda::kZeroAnswer || row.name == simcuda::kZerosAnswer) reads += row.times;
  }
  if (reads == 0) return {};
  return fmt::format(
      "kernels do nothing on a simulated GPU: reads of values that they compute gave zeros ({}); "
      "if "
      "that is why the command failed, state answers with --sim-answers",
      reads);
}

}  // namespace fragscope::tools
