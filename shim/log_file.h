// Where the log of this process lies and how it gets there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "log/log_writer.h"
#include "log/shared_region.h"

namespace fragscope::shim {

struct OpenLog {
  log::SharedRegion region;
  log::LogWriter writer;   // borrows from region
  std::string path;        // under a name that readers do not look at yet
  std::string final_path;  // under the name that they do
  uint64_t capacity_bytes;
};

// A new log of at most `capacity_bytes` in FRAGSCOPE_LOG_DIR, else FRAGSCOPE_LOG_FALLBACK_DIR, else
// the run directory FRAGSCOPE_OUT (which is made). Smaller when the address space or the size of
// files is limited; below the smallest one that `fragscope run` keeps ready. nullopt: nowhere.
// `ring`: three quarters of it are a ring of the newest events.
std::optional<OpenLog> create_log(uint64_t capacity_bytes, bool ring, uint64_t random) noexcept;

// Gives it the final name; mapping and descriptor stay for good.
void publish_log(OpenLog& log) noexcept;
// Takes back a log that nobody wrote to.
void discard_log(OpenLog& log) noexcept;

// Leaves word in the log directory of `fragscope run` that this process loaded CUDA's driver, for
// when nothing is recorded.
void note_driver_seen() noexcept;

}  // namespace fragscope::shim
