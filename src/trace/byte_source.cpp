#include "trace/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace fragscope::trace {

Result<ByteSource> ByteSource::open_file(const std::string& path) {
  ByteSource source;
  source.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (source.fd_ < 0) {
    const ErrorCode code =
        errno == ENOENT || errno == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kPermission;
    return Error{code, path + ": cannot open: " + std::strerror(errno)};
  }
  struct stat info {};
  if (::fstat(source.fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    return Error{ErrorCode::kForeign, path + ": not a regular file"};
  }
  source.size_ = static_cast<uint64_t>(info.st_size);
  return source;
}

ByteSource ByteSource::of_bytes(std::vector<std::byte> bytes) {
  ByteSource source;
  source.bytes_ = std::move(bytes);
  source.size_ = source.bytes_.size();
  return source;
}

ByteSource::ByteSource(ByteSource&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      size_(std::exchange(other.size_, 0)),
      bytes_(std::move(other.bytes_)) {}

ByteSource& ByteSource::operator=(ByteSource&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

ByteSource::~ByteSource() {
  if (fd_ >= 0) ::close(fd_);
}

std::span<const std::byte> ByteSource::read(uint64_t offset, uint64_t count) {
  if (offset >= size_) return {};
  count = std::min(count, size_ - offset);
  if (fd_ < 0) return std::span<const std::byte>(bytes_).subspan(offset, count);
  bytes_.resize(count);
  uint64_t done = 0;
  while (done < count) {
    const ssize_t got =
        ::pread(fd_, bytes_.data() + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<uint64_t>(got);
  }
  return std::span<const std::byte>(bytes_).first(done);
}

}  // namespace fragscope::trace
