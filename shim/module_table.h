// Which files are mapped executable where, so that return addresses can be named later.
//
// Logged as blobs of kind `module`, one line each, numbers in hex without prefix:
//   START-END OFFSET =BUILD-ID PATH
//   7f12a4000000-7f12a4195000 26000 =6196744a316dbd57c0fc8968df1680aac482cec4 /usr/lib/libc.so.6
// (without "=BUILD-ID " where there is none), read from /proc/self/maps whenever a new stack was
// seen after the loader loaded or unloaded something. A later line that overlaps an earlier one
// replaces it from there on. Build-ids come from memory: the file may be another one by now.
//
// Threads: any; one scans, the others go on without waiting. Allocates nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "log/log_writer.h"

namespace fragscope::shim {

// How often something was unloaded, as far as dlclose() told (unload_hook.cpp): from then on the
// same addresses may mean other functions.
uint64_t unload_generation() noexcept;

class ModuleTable {
 public:
  // Logs mappings that are new since the last call, if the loader's counters moved.
  // Returns true when something was loaded or unloaded since then.
  bool refresh(log::LogWriter& writer) noexcept;

 private:
  void scan(log::LogWriter& writer) noexcept;
  void on_line(const char* line, size_t length, log::LogWriter& writer) noexcept;

  static constexpr size_t kMaxModules = 4096;
  std::atomic<bool> scanning_{false};
  std::atomic<uint64_t> adds_{0};
  std::atomic<uint64_t> subs_{0};
  // Hashes of the lines of the scan before and of this one; written by the one that scans.
  uint64_t lines_[2][kMaxModules]{};
  size_t counts_[2]{};
  size_t now_ = 0;  // which of the two is this scan's
  uint32_t next_id_ = 0;
};

}  // namespace fragscope::shim
