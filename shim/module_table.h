// Which files are mapped executable where, so that return addresses can be named later.
//
// Logged as blobs of kind `module`, one line each, numbers in hex without prefix:
//   START-END OFFSET PATH       e.g.  7f12a4000000-7f12a4195000 26000 /usr/lib/libc.so.6
// read from /proc/self/maps whenever a new stack was seen after the loader loaded or unloaded
// something. A later line that overlaps an earlier one replaces it from there on.
//
// Threads: any; one scans, the others go on without waiting. Allocates nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "log/log_writer.h"

namespace fragscope::shim {

class ModuleTable {
 public:
  // Logs mappings that are new since the last call, if the loader's counters moved.
  // Returns true when something was unloaded since then.
  bool refresh(log::LogWriter& writer) noexcept;

 private:
  void scan(log::LogWriter& writer) noexcept;
  void on_line(const char* line, size_t length, log::LogWriter& writer) noexcept;

  static constexpr size_t kMaxModules = 4096;
  std::atomic<bool> scanning_{false};
  std::atomic<uint64_t> adds_{0};
  std::atomic<uint64_t> subs_{0};
  size_t count_ = 0;               // written by the one that scans
  uint64_t known_[kMaxModules]{};  // hashes of logged lines
};

}  // namespace fragscope::shim
