// Everything that is decided before the command of `fragscope run` starts.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>

#include "base/result.h"
#include "enforce/limits.h"
#include "simcuda/sim_config.h"
#include "tools/installation.h"
#include "tools/log_place.h"
#include "tools/python_torch.h"
#include "tools/run_environment.h"
#include "tools/run_options.h"

namespace fragscope::tools {

struct RunPlan {
  Installation installation;
  std::string program;                       // path of argv[0]
  uint64_t gpu_used_bytes = 0;               // by others, on each device
  std::optional<simcuda::SimConfig> gpu;     // simulated
  std::optional<TorchInstall> torch;         // that the command's Python would import
  Environment environment;                   // of the command, without the places of logs
  std::map<std::string, std::string> notes;  // for run.json and the summary
  std::optional<uint64_t> log_bytes;
  std::optional<gid_t> log_group;  // whose members may record beside this user
  enforce::Limits limits;
  uint64_t min_stack_bytes = 0;  // smaller memory gets no call stack
  uint64_t max_trace_bytes = 0;  // of all traces together; 0: no bound
};

// Checks options, command, GPU and installation, prepares the torch adaptor (prints one line on
// stderr before slow work, unless quiet) and settles how settings are enforced. Creates nothing but
// the adaptor. Errors: kInvalidArgument for options; kUnsupported when there is no GPU and none is
// asked for; kNotFound with `program` empty when the command is not there.
struct PlanFailure {
  Error error;
  int exit_code;
};
std::variant<RunPlan, PlanFailure> make_run_plan(const RunOptions& options);

// The variables that describe the simulated devices and name the places of this run's logs.
void name_places(Environment& environment, const RunOptions& options, const RunPlan& plan,
                 const std::string& run_directory, const LogPlace& place);

// Why a driver library of a GPU cannot be loaded; nullopt when it can.
std::optional<std::string> why_no_gpu_driver();

}  // namespace fragscope::tools
