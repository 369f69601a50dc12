// Reserving storage for a log file before it is touched, so that a full disk or tmpfs is an error
// code here and never a SIGBUS in the target.
#pragma once

#include <cstdint>

namespace fragscope::log {

// Makes [offset, offset + bytes) of `fd` writable without further allocation. Returns 0 or an errno
// (ENOSPC, EFBIG, EDQUOT, …). Never raises SIGXFSZ: RLIMIT_FSIZE is asked first. Async-signal-safe.
int reserve_storage(int fd, uint64_t offset, uint64_t bytes) noexcept;

}  // namespace fragscope::log
