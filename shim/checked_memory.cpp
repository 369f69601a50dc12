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

}  // namespace fragscope::shim
