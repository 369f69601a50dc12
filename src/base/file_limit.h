// RLIMIT_FSIZE, asked before a write: beyond it the kernel would raise SIGXFSZ, which ends a
// program that does not expect it.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace fragscope {

// May a file of this process grow to `bytes`?
inline bool file_may_grow_to(uint64_t bytes) noexcept {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
         bytes <= limit.rlim_cur;
}

}  // namespace fragscope
