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
#include "enforce/plan_placement.h"
#include "model/allocator_config.h"
#include "model/version_profile.h"
#include "tools/alloc_conf.h"
#include "tools/command.h"
#include "tools/log_place.h"
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
  std::filesystem::remove(gpu.books + ".pids", failed);
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

// CUDA's own allocator has no blocks to split and no segments of ours.
void warn_of_idle_settings(const std::string& conf, const RunOptions& options) {
  const auto config = model::parse_config(conf, model::version_profiles().back());
  if (!config || config->backend != "cudaMallocAsync" || options.quiet) return;
  std::string idle;
  for (const char* key : {"max_split_size_mb", "roundup_power2_divisions",
                          "garbage_collection_threshold", "expandable_segments"}) {
    if (conf.find(key) != std::string::npos) idle += (idle.empty() ? "" : ", ") + std::string(key);
  }
  if (idle.empty()) return;
  warn("backend:cudaMallocAsync is CUDA's own allocator, which does not know " + idle +
       ": it changes nothing there");
}

// Every PyTorch process gets the settings through its own variable, also those that a script
// starts.
MaybeFailure enforce_native(const RunOptions& options, const std::string& changes,
                            const Environment& user, RunPlan& plan) {
  const std::string version = plan.torch ? plan.torch->version : "";
  const auto merged = native_alloc_conf(user, changes, version);
  if (!merged.ok()) return usage(merged.error());
  set_variable(plan.environment, "PYTORCH_CUDA_ALLOC_CONF", merged.value());
  plan.notes["enforce"] = "native";
  plan.notes["alloc_conf"] = merged.value();
  warn_of_idle_settings(merged.value(), options);
  return std::nullopt;
}

bool can_be_served(const std::string& changes) {
  const auto config = model::parse_config(changes, model::version_profiles().back());
  return config && !config->expandable_segments && config->backend == "native";
}

void ask_for_shim(const char* mode, const std::string& changes, RunPlan& plan) {
  set_variable(plan.environment, "FRAGSCOPE_ENFORCE", mode);
  set_variable(plan.environment, "FRAGSCOPE_ALLOC_CONF", changes);
}

// PyTorch's segments are the blocks of the shim's allocator; the recording tells that one's.
void warn_of_second_cache(const RunOptions& options, const RunPlan& plan) {
  if (!plan.torch || options.quiet) return;
  warn(
      "--enforce shim puts a second cache under PyTorch's own, which keeps its settings: the "
      "recording has PyTorch's segments as blocks and not what PyTorch does inside them; leave "
      "--enforce out to give PyTorch the settings");
}

MaybeFailure enforce_shim(const RunOptions& options, const std::string& changes, RunPlan& plan) {
  if (options.no_record) {
    return usage({ErrorCode::kInvalidArgument,
                  "--enforce shim works inside the recorder: it cannot go with --no-record"});
  }
  const auto accepted = native_alloc_conf({}, changes, "");
  if (!accepted.ok()) return usage(accepted.error());
  if (!can_be_served(changes)) {
    return usage({ErrorCode::kInvalidArgument,
                  "--enforce shim serves whole cudaMalloc segments: it cannot apply "
                  "expandable_segments or another backend; leave the option out or use --enforce "
                  "native"});
  }
  ask_for_shim("shim", changes, plan);
  warn_of_second_cache(options, plan);
  plan.notes["enforce"] = "shim";
  plan.notes["alloc_conf"] = changes;
  return std::nullopt;
}

// Served by the shim's policy, or by libfragscope_alloc.so in a program that asks for it.
MaybeFailure settle_plan(const RunOptions& options, RunPlan& plan) {
  if (options.plan.empty()) return std::nullopt;
  if (options.no_record) {
    return usage({ErrorCode::kInvalidArgument,
                  "--plan works inside the recorder: it cannot go with --no-record"});
  }
  if (options.enforce == "native") {
    return usage({ErrorCode::kInvalidArgument,
                  "--plan cannot go with --enforce native: PyTorch's own allocator follows none"});
  }
  const auto loaded = enforce::load_plan(options.plan);
  if (!loaded.ok()) return PlanFailure{loaded.error(), kExitInput};
  std::error_code failed;
  const std::string path = std::filesystem::absolute(options.plan, failed);
  set_variable(plan.environment, "FRAGSCOPE_PLAN", path);
  if (!get_variable(plan.environment, "FRAGSCOPE_ENFORCE")) {
    set_variable(plan.environment, "FRAGSCOPE_ENFORCE",
                 options.enforce.empty() ? "auto" : options.enforce);
  }
  plan.notes["enforce_plan"] = path;
  if (plan.torch && options.enforce.empty() && !options.quiet) {
    say("PyTorch follows the plan where the program calls fragscope.torch.enable(), or with "
        "--enforce shim");
  }
  return std::nullopt;
}

MaybeFailure settle_caps(const RunOptions& options, RunPlan& plan) {
  const std::string option = first_limit_option(options.limits);
  if (options.no_record) {
    if (option.empty()) return std::nullopt;
    return usage({ErrorCode::kInvalidArgument,
                  option + " works inside the recorder: it cannot go with --no-record"});
  }
  auto limits = settle_limits(options.limits, plan.environment, plan.notes);
  if (!limits.ok()) return usage(limits.error());
  plan.limits = std::move(limits).value();
  return std::nullopt;
}

// PyTorch natively; in processes without it (each decides with its first allocation) the shim's
// policy.
MaybeFailure enforce_automatically(const RunOptions& options, const std::string& changes,
                                   const Environment& user, RunPlan& plan) {
  if (const auto failure = enforce_native(options, changes, user, plan)) return failure;
  const bool served = can_be_served(changes);
  // For scripts that take the pluggable allocator, also without the recorder.
  if (served) set_variable(plan.environment, "FRAGSCOPE_ALLOC_CONF", changes);
  if (!options.no_record && served) {
    ask_for_shim("auto", changes, plan);
    if (!plan.torch) plan.notes["enforce"] = "auto";
  } else if (!plan.torch && !options.quiet) {
    warn(options.no_record
             ? "without the recorder the settings reach PyTorch alone"
             : "these settings cannot be served under cudaMalloc: they reach PyTorch alone");
  }
  return std::nullopt;
}

MaybeFailure settle_enforcement(const RunOptions& options, const Environment& user, RunPlan& plan) {
  const std::string changes = requested_alloc_conf(options.max_split_size_mb, options.alloc_conf);
  if (options.enforce == "pluggable") {
    return usage({ErrorCode::kInvalidArgument,
                  "PyTorch takes a pluggable allocator only from its program: put `import "
                  "fragscope.torch; fragscope.torch.enable(max_split_size_mb=N)` before its first "
                  "CUDA tensor"});
  }
  if (changes.empty()) {
    if (options.enforce.empty() || !options.plan.empty()) return std::nullopt;
    return usage(
        {ErrorCode::kInvalidArgument,
         "--enforce needs something to enforce: --max-split-size-mb, --alloc-conf or --plan"});
  }
  if (options.enforce == "native") return enforce_native(options, changes, user, plan);
  if (options.enforce == "shim") return enforce_shim(options, changes, plan);
  return enforce_automatically(options, changes, user, plan);
}

MaybeFailure take_size(const std::string& option, const std::string& text, uint64_t& out) {
  if (text.empty()) return std::nullopt;
  const auto bytes = parse_size(text);
  if (!bytes.ok()) return usage({bytes.error().code, option + ": " + bytes.error().text});
  if (*bytes == 0) return usage({ErrorCode::kInvalidArgument, option + ": must not be 0"});
  out = *bytes;
  return std::nullopt;
}

MaybeFailure settle_log_group(const RunOptions& options, RunPlan& plan) {
  if (options.log_group.empty()) return std::nullopt;
  if (options.durable) {
    return usage({ErrorCode::kInvalidArgument,
                  "--log-group opens a place in memory: it cannot go with --durable"});
  }
  const auto group = find_group(options.log_group);
  if (!group.ok()) return usage({group.error().code, "--log-group: " + group.error().text});
  plan.log_group = *group;
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
  if (const auto failure = settle_log_group(options, plan)) return *failure;
  find_command_torch(options, user, plan);
  if (const auto failure = settle_enforcement(options, user, plan)) return *failure;
  if (const auto failure = settle_plan(options, plan)) return *failure;
  if (const auto failure = settle_caps(options, plan)) return *failure;
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
