// run.fsr/: the directory of one run. run.json (what was run, on what, how it ended) and one trace
// file per process that touched CUDA: <pid>-<start_ticks>-<random>.fst. While the run lives, or
// when its collector was killed, logs (*.fslog) lie here or in `log_directory`.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "trace/trace_data.h"

namespace fragscope::trace {

struct RunProcess {
  uint32_t pid = 0;
  uint64_t start_ticks = 0;
  std::string trace_file;  // relative to the run directory
  ProcessExit exit;
};

struct RunInfo {
  int schema = 1;
  std::string fragscope_version;
  std::vector<std::string> command;
  std::string start_time;  // UTC, RFC 3339
  std::string host;
  std::string gpu;            // --gpu as resolved ("" = the machine's own)
  std::string log_directory;  // where live logs are; "" once sealed
  bool sealed = false;
  ProcessExit exit;                          // of the command itself
  std::map<std::string, std::string> notes;  // what the collector found worth saying
  std::vector<RunProcess> processes;
};

// Creates the directory (0700). kInvalidArgument when it exists and is not empty.
Status create_run_directory(const std::string& path);
// Atomically; on a full disk in the place of the old one.
Status write_run_info(const std::string& directory, const RunInfo& info);
Result<RunInfo> read_run_info(const std::string& directory);

}  // namespace fragscope::trace
