// RLIMIT_FSIZE, asked before a write: beyond it the kernel would raise SIGXFSZ, which ends a
// program that does not expect it.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace fragscope {

// How large a file of this process may be; UINT64_MAX: as large as it likes.
inline uint64_t file_limit_bytes() noexcept {
  rlimit limit{};
  const bool unlimited = ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY;
  return unlimited ? UINT64_MAX : limit.rlim_cur;
}

// May a file of this process grow to `bytes`?
inline bool file_may_grow_to(uint64_t bytes) noexcept { return bytes <= file_limit_bytes(); }

}  // namespace fragscope
