// The options of `fragscope run`, as given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/run_limits.h"

namespace fragscope::tools {

struct RunOptions {
  std::string gpu;             // preset or size; empty: the machine's own
  std::string sim_log;         // file of the calls that the simulated device answered; empty: none
  std::string sim_answers;     // file of answers to reads of computed values; empty: defaults alone
  std::string sim_script;      // file of errors to play; empty: none
  uint64_t sim_kernel_us = 0;  // for which each kernel keeps its stream busy; 0: none
  std::string gpu_used;        // a size that other tenants of the card hold; empty: none
  bool no_record = false;      // only the simulated GPU and the settings
  std::string output;          // run directory; empty: ./fragscope-<program>-<pid>.fsr
  bool quiet = false;          // no words of ours unless there is no run
  std::optional<uint64_t> max_split_size_mb;
  std::string alloc_conf;  // PyTorch's key:value,… grammar
  std::string enforce;     // "native", "shim", or empty: each process's own way
  std::string plan;        // a file that `fragscope plan` wrote; empty: none
  LimitOptions limits;     // caps, failures on purpose, what happens at out of memory
  std::string stacks;      // "none", "native", or empty: the shim's default
  std::optional<uint32_t> depth;
  std::string log_bytes;  // a size; empty: chosen by what the memory file system has
  bool durable = false;
  std::string log_group;     // who may make logs beside this user: name or number; empty: nobody
  bool ring = false;         // full logs keep the newest events
  std::string min_size;      // a size: smaller memory gets no call stack
  std::string max_trace;     // a size: of all traces together
  uint64_t sample_ms = 500;  // between looks at memory of the host; 0: none
  std::vector<std::string> command;
};

}  // namespace fragscope::tools
