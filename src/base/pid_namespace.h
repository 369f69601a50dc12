// Which pid namespace this process is in: processes of two containers that share a file may have
// the same number, and none can see whether the other lives.
#pragma once

#include <sys/stat.h>

#include <cstdint>

namespace fragscope {

// 0: not to be seen. Not kept: a child may be in another one than its parent.
inline uint32_t own_pid_namespace() noexcept {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? static_cast<uint32_t>(info.st_ino) : 0;
}

}  // namespace fragscope
