// Where the logs of a run lie while it lives: in memory, so that a busy disk never holds the
// target up, and small enough to leave the memory file system to the program.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace fragscope::tools {

// Ring capacity per process under `fragscope run`, which drains it all the time; with plain
// preloading the shim's own default (1 GiB) holds.
inline constexpr uint64_t kDefaultRunLogBytes = 256ull << 20;

struct LogPlace {
  std::string directory;   // exists, 0700, ours, not predictable; or the run directory itself
  bool in_memory = false;  // a directory of its own on tmpfs, to be removed after the run
  uint64_t log_bytes = 0;  // capacity of each process's log
  std::string reason;      // why not in memory; empty otherwise
};

// Where logs may lie in memory: the user's own directory first, /dev/shm is what programs exchange
// data through.
std::vector<std::string> memory_directories();

struct LogPlaceRequest {
  std::string run_directory;  // absolute
  std::optional<uint64_t> log_bytes;
  bool durable = false;  // on disk: survives the machine, not only the process
  // Processes of this group record too: only a place that they can enter will do.
  std::optional<gid_t> group;
};

// Never an error: the run directory is the last resort. At most an eighth of a memory file system's
// free space goes to one log.
LogPlace choose_log_place(const LogPlaceRequest& request);

// A group by name or number. Errors: kInvalidArgument, kNotFound.
Result<gid_t> find_group(const std::string& text);
// Gives the group what the owner of a file or directory may do. Errors: kPermission.
Status share_with_group(const std::string& path, gid_t group);

}  // namespace fragscope::tools
