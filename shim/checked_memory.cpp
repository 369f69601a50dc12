#include "shim/checked_memory.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace fragscope::shim {
namespace {

// For sandboxes that refuse process_vm_readv.
bool read_proc_mem(uintptr_t address, void* out, size_t bytes) {
  const int fd = ::open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t count = ::pread(fd, out, bytes, static_cast<off_t>(address));
  ::close(fd);
  return count == static_cast<ssize_t>(bytes);
}

}  // namespace

bool read_checked(uintptr_t address, void* out, size_t bytes) noexcept {
  iovec local{out, bytes};
  iovec remote{reinterpret_cast<void*>(address), bytes};
  const ssize_t count = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
  if (count == static_cast<ssize_t>(bytes)) return true;
  if (count >= 0 || errno == EFAULT) return false;
  return read_proc_mem(address, out, bytes);
}

uintptr_t readable_until(uintptr_t from, uintptr_t to) noexcept {
  constexpr size_t kMost = 64;
  while (from < to) {
    char read[kMost];
    iovec pages[kMost];
    size_t wanted = 0;
    for (uintptr_t page = from; page < to && wanted < kMost; page += kPageBytes) {
      pages[wanted++] = {reinterpret_cast<void*>(page), 1};
    }
    const iovec local{read, wanted};
    const ssize_t count = process_vm_readv(getpid(), &local, 1, pages, wanted, 0);
    if (count > 0) {
      from += static_cast<size_t>(count) * kPageBytes;
    } else if (errno == EFAULT || !read_proc_mem(from, read, 1)) {
      return from;
    } else {
      from += kPageBytes;
    }
    if (count > 0 && static_cast<size_t>(count) < wanted) return from;
  }
  return from;
}

}  // namespace fragscope::shim
