// How a process ended that somebody else waits for: the kernel tells whoever held a pidfd since
// before its end (Linux 6.15 and later; elsewhere nothing is known).
//
// Ownership: owns a descriptor. Threads: one at a time. Errors: none, what is not known is absent.
// Source: linux/pidfd.h, PIDFD_GET_INFO with PIDFD_INFO_EXIT.
#pragma once

#include <cstdint>
#include <optional>

#include "trace/trace_data.h"

namespace fragscope::capture {

class ExitWatch {
 public:
  // `pid` lives or has not been waited for yet; otherwise the watch knows nothing.
  explicit ExitWatch(uint32_t pid);
  ~ExitWatch();
  ExitWatch(const ExitWatch&) = delete;
  ExitWatch& operator=(const ExitWatch&) = delete;

  bool usable() const { return fd_ >= 0; }
  // Absent until its parent has waited for it.
  std::optional<trace::ProcessExit> exit() const;

 private:
  int fd_;
};

}  // namespace fragscope::capture
