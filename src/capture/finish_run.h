// Finishing a run whose collector was killed: what its logs hold goes into the traces, by the same
// code that reads such runs (recover.h); then the logs, which may lie in memory, go.
//
// Threads: one at a time. Nothing of a process that still lives is touched. A log goes only once
// the trace that holds all of it is on the disk under its final name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace fragscope::capture {

struct FinishedRun {
  uint64_t finished = 0;              // processes whose logs are gone now
  uint64_t living = 0;                // processes that still run: their logs stay
  std::vector<std::string> warnings;  // one line for each log that could not be finished, and stays
};

// `run_directory` may have no run.json (a plain preload). Errors: those of read_run_info() but
// kNotFound; kUnsupported when another collector is at work.
Result<FinishedRun> finish_run(const std::string& run_directory);

// True while the process of a log that is named like this lives.
bool is_log_of_living_process(const std::string& log_path);

}  // namespace fragscope::capture
