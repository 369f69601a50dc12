// A preload that makes the kernel look as if it knew no MADV_WIPEONFORK.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

extern "C" __attribute__((visibility("default"))) int madvise(void* address, size_t bytes,
                                                              int advice) noexcept {
  if (advice == MADV_WIPEONFORK) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(syscall(SYS_madvise, address, bytes, advice));
}
