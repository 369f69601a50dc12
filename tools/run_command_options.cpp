#include "tools/run_command_options.h"

#include <CLI/CLI.hpp>

#include "simcuda/sim_config.h"
#include "tools/command.h"
#include "tools/run_limits.h"

namespace fragscope::tools {
namespace {

std::string not_empty(const std::string& text) { return text.empty() ? "must not be empty" : ""; }

}  // namespace

void add_run_options(CLI::App& command, RunOptions& options) {
  command
      .add_option("--gpu", options.gpu,
                  "Simulate a GPU: a preset (see fragscope gpus) or a size such as 24GiB")
      ->check(not_empty);
  command
      .add_option("--sim-log", options.sim_log,
                  "With --gpu: write each memory call that the device answered to this file")
      ->check(not_empty);
  command
      .add_option("--sim-answers", options.sim_answers,
                  "With --gpu: a file of answers to reads of values that kernels compute")
      ->check(not_empty);
  command
      .add_option("--sim-script", options.sim_script,
                  "With --gpu: a file of errors to play, e.g. cudaMalloc 3 fail "
                  "CUDA_ERROR_OUT_OF_MEMORY")
      ->check(not_empty);
  command
      .add_option("--sim-kernel-us", options.sim_kernel_us,
                  "With --gpu: assume that every kernel takes so many microseconds")
      ->check(CLI::Range(uint64_t{1}, simcuda::kMostKernelUs));
  command
      .add_option("--gpu-used", options.gpu_used,
                  "With --gpu: memory that others hold on each device, e.g. 3GiB")
      ->check(not_empty);
  command.add_flag("--no-record", options.no_record, "Run without recording");
  command
      .add_option("-o,--output", options.output,
                  "Run directory to create (./fragscope-<program>-<pid>.fsr)")
      ->check(not_empty);
  command.add_flag("-q,--quiet", options.quiet, "No words of fragscope's own on stderr");
  command
      .add_option("--max-split-size-mb", options.max_split_size_mb,
                  "Enforce this split limit (MiB)")
      ->check(whole_number);
  command.add_option("--alloc-conf", options.alloc_conf,
                     "Enforce these settings (PyTorch's key:value,key:value)");
  command
      .add_option("--enforce", options.enforce,
                  "How: native (PyTorch's own variable) or shim (under cudaMalloc); by default "
                  "each process's own way")
      ->check(CLI::IsMember({"native", "shim", "pluggable"}));
  command
      .add_option("--plan", options.plan,
                  "Place requests as this file of `fragscope plan` says (under cudaMalloc, or with "
                  "fragscope.torch.enable())")
      ->check(not_empty);
  add_limit_options(command, options.limits);
  command
      .add_option("--stacks", options.stacks, "Call stacks of events: native, python, both, none")
      ->check(CLI::IsMember({"none", "native", "python", "both"}));
  command.add_option("--depth", options.depth, "Frames per stack at most, of each kind")
      ->check(CLI::Range(1u, 1024u));
  command.add_option("--log-bytes", options.log_bytes,
                     "Size of each process's log in memory, e.g. 64MiB");
  command.add_flag("--ring", options.ring,
                   "A full log keeps the newest events, instead of stopping and counting");
  command
      .add_option(
          "--min-size", options.min_size,
          "No call stacks for memory smaller than this; every event is recorded all the same")
      ->check(not_empty);
  command
      .add_option("--max-trace", options.max_trace,
                  "Write at most this much of traces, e.g. 2GiB; later events are counted")
      ->check(not_empty);
  command
      .add_option("--sample-ms", options.sample_ms,
                  "Look at RSS, PSS and /dev/shm of all processes of the command this often (500); "
                  "0: never")
      ->check(CLI::Range(0u, 3'600'000u));
  command.add_flag("--durable", options.durable, "Keep logs on disk, not in memory");
  command
      .add_option("--log-group", options.log_group,
                  "For commands that give up root before they use CUDA: members of this group may "
                  "record into the run, and use its simulated GPU")
      ->check(not_empty);
}

}  // namespace fragscope::tools
