#include "capture/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trace/file_limit.h"

namespace fragscope::capture {
namespace {

Error system_error(const std::string& path, const char* what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  const bool missing = error == ENOENT || error == ENOTDIR;
  const ErrorCode code = full      ? ErrorCode::kNoSpace
                         : missing ? ErrorCode::kNotFound
                                   : ErrorCode::kPermission;
  return {code, path + ": cannot " + what + ": " + std::strerror(error)};
}

}  // namespace

Result<std::unique_ptr<TraceFile>> TraceFile::create(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return system_error(path, "create", errno);
  std::unique_ptr<TraceFile> file(new TraceFile(path, fd));
  if (::fchmod(fd, 0600) != 0) return system_error(path, "set the mode of", errno);
  return file;
}

TraceFile::~TraceFile() { ::close(fd_); }

Status TraceFile::write(std::span<const std::byte> bytes) {
  if (!trace::file_may_grow_to(size_ + bytes.size())) {
    return system_error(path_, "write", EFBIG);
  }
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::write(fd_, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const Error error = system_error(path_, "write", count < 0 ? errno : ENOSPC);
      // What this call did write would be a cut chunk; if that fails too, readers find the cut.
      if (::ftruncate(fd_, static_cast<off_t>(size_)) == 0) {
        static_cast<void>(::lseek(fd_, static_cast<off_t>(size_), SEEK_SET));
      }
      return error;
    }
    done += static_cast<size_t>(count);
  }
  size_ += bytes.size();
  return Done{};
}

Status TraceFile::sync() {
  if (::fdatasync(fd_) == 0) return Done{};
  return system_error(path_, "write", errno);
}

}  // namespace fragscope::capture
