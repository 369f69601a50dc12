#include "tools/run_plan.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/bytes.h"
#include "model/allocator_config.h"
#include "model/version_profile.h"
#include "tools/alloc_conf.h"
#include "tools/command.h"
#include "tools/program_lookup.h"
#include "tools/simulation.h"
#include "tools/subprocess.h"
#include "tools/torch_adaptor.h"

namespace fragscope::tools {
namespace {

using MaybeFailure = std::optional<PlanFailure>;

PlanFailure usage(const Error& error) { return {error, kExitUsage}; }

std::string path_variable(const Environment& environment) {
  return get_variable(environment, "PATH").value_or("/bin:/usr/bin");
}

MaybeFailure find_command(const RunOptions& options, const Environment& user, RunPlan& plan) {
  const auto program = find_program(options.command[0], path_variable(user));
  if (program.ok()) {
    plan.program = program.value();
    return std::nullopt;
  }
  const bool missing = program.error().code == ErrorCode::kNotFound;
  return PlanFailure{program.error(), missing ? kExitNotFound : kExitNotExecutable};
}

// The driver appends to the file; what it held is another run's.
MaybeFailure settle_sim_log(const RunOptions& options, simcuda::SimConfig& gpu) {
  if (options.sim_log.empty()) return std::nullopt;
  std::error_code failed;
  gpu.books = std::filesystem::absolute(options.sim_log, failed);
  const int fd = ::open(gpu.books.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) {
    return PlanFailure{{ErrorCode::kPermission, options.sim_log + ": cannot be written: " +
                                                    std::generic_category().message(errno)},
                       kExitOutput};
  }
  ::close(fd);
  return std::nullopt;
}

MaybeFailure settle_gpu(const RunOptions& options, RunPlan& plan) {
  if (options.gpu.empty()) {
    const std::string option = first_simulation_option(options);
    if (!option.empty()) {
      return usage({ErrorCode::kInvalidArgument, option + " needs a simulated device: add --gpu"});
    }
    const auto reason = why_no_gpu_driver();
    if (!reason) return std::nullopt;
    return PlanFailure{{ErrorCode::kUnsupported,
                        fmt::format("this machine has no usable NVIDIA driver ({}); simulate a "
                                    "card with --gpu, e.g. --gpu 24GiB or --gpu a100-40gb",
                                    *reason)},
                       kExitRunFailed};
  }
  const auto config = simcuda::resolve_gpu(options.gpu);
  if (!config.ok()) return usage(config.error());
  plan.gpu = config.value();
  const Status applied = apply_simulation_options(options, *plan.gpu, plan.gpu_used_bytes);
  if (!applied.ok()) return usage(applied.error());
  if (const auto failure = settle_sim_log(options, *plan.gpu)) return *failure;
  const Status usable = check_stand_ins(plan.installation);
  if (!usable.ok()) return PlanFailure{usable.error(), kExitRunFailed};
  return std::nullopt;
}

void find_command_torch(const RunOptions& options, const Environment& user, RunPlan& plan) {
  const auto python = find_python(options.command, path_variable(user));
  if (!python) return;
  plan.notes["python"] = *python;
  const auto torch = find_torch(*python);
  if (!torch.ok()) {
    plan.notes["torch_problem"] = torch.error().text;
  } else if (torch.value()) {
    plan.torch = *torch.value();
    plan.notes["torch"] = plan.torch->version;
  }
}

// `bash train.sh` may start any Python: most likely the one that its PATH begins with.
std::optional<TorchInstall> torch_of_shell(const RunOptions& options, const Environment& user) {
  const std::string name = std::filesystem::path(options.command[0]).filename().string();
  const std::initializer_list<std::string_view> shells = {"sh", "bash", "dash", "zsh", "ksh"};
  if (std::find(shells.begin(), shells.end(), name) == shells.end()) return std::nullopt;
  for (const char* candidate : {"python", "python3"}) {
    const auto python = find_python({candidate}, path_variable(user));
    if (!python) continue;
    const auto torch = find_torch(*python);
    if (torch.ok() && torch.value()) return *torch.value();
  }
  return std::nullopt;
}

void prepare_adaptor(const RunOptions& options, const Environment& user, RunPlan& plan) {
  if (options.no_record) return;
  const std::optional<TorchInstall> torch = plan.torch ? plan.torch : torch_of_shell(options, user);
  if (!torch) return;
  const std::string directory = adaptor_directory();
  const auto progress = [&](const std::string& line) {
    if (!options.quiet) say(line);
  };
  const auto adaptor = ensure_adaptor({plan.installation, *torch, directory, false, progress});
  if (adaptor.ok()) {
    plan.notes["torch_adaptor"] = adaptor->path;
    set_variable(plan.environment, "FRAGSCOPE_TORCH_ADAPTOR_DIR", directory);
  } else {
    plan.notes["torch_adaptor_problem"] = adaptor.error().text;
    if (!options.quiet) {
      warn(adaptor.error().text + "; recording block sizes without requested sizes and streams");
    }
  }
}

MaybeFailure enforce_native(const std::string& changes, const Environment& user, RunPlan& plan) {
  const std::string version = plan.torch ? plan.torch->version : "";
  const auto merged = native_alloc_conf(user, changes, version);
  if (!merged.ok()) return usage(merged.error());
  set_variable(plan.environment, "PYTORCH_CUDA_ALLOC_CONF", merged.value());
  plan.notes["enforce"] = "native";
  plan.notes["alloc_conf"] = merged.value();
  return std::nullopt;
}

MaybeFailure settle_enforcement(const RunOptions& options, const Environment& user, RunPlan& plan) {
  const std::string changes = requested_alloc_conf(options.max_split_size_mb, options.alloc_conf);
  if (changes.empty()) {
    if (options.enforce.empty()) return std::nullopt;
    return usage({ErrorCode::kInvalidArgument,
                  "--enforce needs something to enforce: --max-split-size-mb or --alloc-conf"});
  }
  const bool native =
      options.enforce.empty() ? plan.torch.has_value() : options.enforce == "native";
  if (native) return enforce_native(changes, user, plan);
  if (options.no_record) {
    return usage({ErrorCode::kInvalidArgument,
                  "--enforce shim works inside the recorder: it cannot go with --no-record"});
  }
  const auto accepted = native_alloc_conf({}, changes, "");
  if (!accepted.ok()) return usage(accepted.error());
  const auto config = model::parse_config(changes, model::version_profiles().back());
  if (!config || config->expandable_segments || config->backend != "native") {
    return usage({ErrorCode::kInvalidArgument,
                  "--enforce shim serves whole cudaMalloc segments: it cannot apply "
                  "expandable_segments or another backend; leave the option out or use --enforce "
                  "native"});
  }
  set_variable(plan.environment, "FRAGSCOPE_ENFORCE", "shim");
  set_variable(plan.environment, "FRAGSCOPE_ALLOC_CONF", changes);
  plan.notes["enforce"] = "shim";
  plan.notes["alloc_conf"] = changes;
  return std::nullopt;
}

MaybeFailure take_size(const std::string& option, const std::string& text, uint64_t& out) {
  if (text.empty()) return std::nullopt;
  const auto bytes = parse_size(text);
  if (!bytes.ok()) return usage({bytes.error().code, option + ": " + bytes.error().text});
  if (*bytes == 0) return usage({ErrorCode::kInvalidArgument, option + ": must not be 0"});
  out = *bytes;
  return std::nullopt;
}

MaybeFailure settle_recording(const RunOptions& options, const Environment& user, RunPlan& plan) {
  if (options.no_record) return std::nullopt;
  const Status usable = check_shim(plan.installation);
  if (!usable.ok()) return PlanFailure{usable.error(), kExitRunFailed};
  const std::string log_bytes = options.log_bytes.empty()
                                    ? get_variable(user, "FRAGSCOPE_LOG_BYTES").value_or("")
                                    : options.log_bytes;
  if (!log_bytes.empty()) {
    const auto bytes = parse_size(log_bytes);
    if (!bytes.ok()) return usage(bytes.error());
    plan.log_bytes = bytes.value();
  }
  if (const auto failure = take_size("--min-size", options.min_size, plan.min_stack_bytes)) {
    return failure;
  }
  if (const auto failure = take_size("--max-trace", options.max_trace, plan.max_trace_bytes)) {
    return failure;
  }
  if (get_variable(user, "FRAGSCOPE_DISABLE") == "1") plan.notes["disabled"] = "1";
  if (const auto reason = why_not_preloadable(plan.program)) {
    plan.notes["not_preloadable"] = *reason;
    if (!options.quiet) warn(*reason + "; nothing of it can be recorded");
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> why_no_gpu_driver() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return std::string(::dlerror());
  ::dlclose(driver);
  return std::nullopt;
}

std::variant<RunPlan, PlanFailure> make_run_plan(const RunOptions& options) {
  RunPlan plan;
  plan.installation = find_installation();
  const Environment user = own_environment();
  if (const auto failure = find_command(options, user, plan)) return *failure;
  if (const auto failure = settle_gpu(options, plan)) return *failure;
  PreloadOptions preload{!options.no_record, plan.gpu.has_value(), {}};
  if (plan.gpu) preload.stand_ins = preloaded_stand_ins(plan.installation);
  plan.environment = target_environment(user, plan.installation, preload);
  if (const auto failure = settle_recording(options, user, plan)) return *failure;
  find_command_torch(options, user, plan);
  if (const auto failure = settle_enforcement(options, user, plan)) return *failure;
  prepare_adaptor(options, user, plan);
  return plan;
}

void name_places(Environment& environment, const RunOptions& options, const RunPlan& plan,
                 const std::string& run_directory, const LogPlace& place) {
  if (plan.gpu) {
    set_variable(environment, simcuda::kConfigVariable, simcuda::format_config(*plan.gpu));
  }
  if (options.no_record) return;
  set_variable(environment, "FRAGSCOPE_LOG_DIR", place.directory);
  set_variable(environment, "FRAGSCOPE_LOG_FALLBACK_DIR", run_directory);
  set_variable(environment, "FRAGSCOPE_LOG_BYTES", std::to_string(place.log_bytes));
  if (options.ring) set_variable(environment, "FRAGSCOPE_RING", "1");
  if (plan.min_stack_bytes != 0) {
    set_variable(environment, "FRAGSCOPE_MIN_SIZE", std::to_string(plan.min_stack_bytes));
  }
  if (!options.stacks.empty()) set_variable(environment, "FRAGSCOPE_STACKS", options.stacks);
  if (options.depth) {
    set_variable(environment, "FRAGSCOPE_STACK_DEPTH", std::to_string(*options.depth));
  }
}

}  // namespace fragscope::tools
