#include "log/log_growth.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/file_limit.h"

namespace fragscope::log {

int reserve_storage(int fd, uint64_t offset, uint64_t bytes) noexcept {
  if (!file_may_grow_to(offset + bytes)) return EFBIG;
  int error = EINTR;
  while (error == EINTR) {
    error = posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  }
  return error;
}

FileIdentity identity_of(int fd) noexcept {
  struct stat info {};
  if (fstat(fd, &info) != 0) return {};
  return {info.st_dev, info.st_ino};
}

}  // namespace fragscope::log
