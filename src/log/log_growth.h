// Reserving storage for a log file before it is touched, so that a full disk or tmpfs is an error
// code here and never a SIGBUS in the target.
#pragma once

#include <cstdint>

namespace fragscope::log {

// Makes [offset, offset + bytes) of `fd` writable without further allocation. Returns 0 or an errno
// (ENOSPC, EFBIG, EDQUOT, …). Never raises SIGXFSZ: RLIMIT_FSIZE is asked first. Async-signal-safe.
int reserve_storage(int fd, uint64_t offset, uint64_t bytes) noexcept;

// Which file a descriptor stands for. The host may close descriptors that it does not know (daemons
// close all) and open files of its own under the same number: growth must not touch those.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};
// All zero when `fd` is closed. Async-signal-safe.
FileIdentity identity_of(int fd) noexcept;

}  // namespace fragscope::log
