// Logs in memory that a killed recorder left behind. `fragscope run` leaves word in its log
// directory of who it is, and holds a lock on that file for as long as it lives.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace fragscope::tools {

// File in a log directory: the pid namespace of the recorder and its run directory, a line each.
inline constexpr const char* kOwnerFile = ".owner";

// Says whose `log_directory` is. The descriptor keeps it so; -1: it could not be said.
int hold_log_directory(const std::string& log_directory, const std::string& run_directory);

// Takes the word back, unless logs are left for somebody to collect. `held`: from above.
void release_log_directory(int held, const std::string& log_directory);

struct StaleLogs {
  std::string log_directory;
  std::string run_directory;  // absolute
  uint64_t bytes = 0;         // of the memory file system
};

// Of this user, in this pid namespace: the recorder is gone, and so is every process that it
// recorded.
std::vector<StaleLogs> find_stale_logs();

// Collects them into their run directories, where those are still there, and removes them.
// One line each of what was done; kExitOk, or kExitNo when some stay.
int collect_stale_logs();

// The same for a run directory that somebody names.
int finish_named_run(const std::string& run_directory);

}  // namespace fragscope::tools
