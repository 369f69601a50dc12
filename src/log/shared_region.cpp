#include "log/shared_region.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/interprocess/mapped_region.hpp>
#include <cerrno>
#include <cstring>

#include "log/log_growth.h"

namespace fragscope::log {
namespace {

namespace bip = boost::interprocess;

Error system_error(const std::string& path, const char* what, int error) {
  ErrorCode code = ErrorCode::kPermission;
  if (error == ENOENT) code = ErrorCode::kNotFound;
  if (error == ENOSPC || error == EFBIG || error == EDQUOT || error == ENOMEM)
    code = ErrorCode::kNoSpace;
  return {code, path + ": cannot " + what + ": " + std::strerror(error)};
}

// What Boost wants to map: a descriptor that is already open and checked.
class OpenFile {
 public:
  OpenFile(int fd, bip::mode_t mode) : fd_(fd), mode_(mode) {}
  bip::mapping_handle_t get_mapping_handle() const {
    return bip::ipcdetail::mapping_handle_from_file_handle(fd_);
  }
  bip::mode_t get_mode() const { return mode_; }

 private:
  int fd_;
  bip::mode_t mode_;
};

}  // namespace

struct SharedRegion::Mapping {
  int fd = -1;
  bip::mapped_region region;

  ~Mapping() {
    if (fd >= 0) ::close(fd);
  }
};

SharedRegion::SharedRegion(std::unique_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}
SharedRegion::SharedRegion(SharedRegion&&) noexcept = default;
SharedRegion& SharedRegion::operator=(SharedRegion&&) noexcept = default;
SharedRegion::~SharedRegion() = default;

Result<SharedRegion> SharedRegion::create(const std::string& path, uint64_t initial_bytes,
                                          uint64_t mapped_bytes) {
  auto mapping = std::make_unique<Mapping>();
  mapping->fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (mapping->fd < 0) return system_error(path, "create", errno);
  if (::fchmod(mapping->fd, 0600) != 0) return system_error(path, "set the mode of", errno);
  if (const int error = reserve_storage(mapping->fd, 0, initial_bytes); error != 0) {
    ::unlink(path.c_str());
    return system_error(path, "reserve space for", error);
  }
  try {
    mapping->region = bip::mapped_region(OpenFile(mapping->fd, bip::read_write), bip::read_write, 0,
                                         static_cast<size_t>(mapped_bytes));
  } catch (const bip::interprocess_exception& error) {
    ::unlink(path.c_str());
    return system_error(path, "map", error.get_native_error());
  }
  return SharedRegion(std::move(mapping));
}

Result<SharedRegion> SharedRegion::open(const std::string& path, bool writable) {
  auto mapping = std::make_unique<Mapping>();
  const int flags = (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  mapping->fd = ::open(path.c_str(), flags);
  if (mapping->fd < 0) return system_error(path, "open", errno);
  struct stat info {};
  if (::fstat(mapping->fd, &info) != 0) return system_error(path, "examine", errno);
  if (!S_ISREG(info.st_mode)) return Error{ErrorCode::kForeign, path + ": not a regular file"};
  const uid_t user = ::geteuid();
  if (writable && user != 0 && info.st_uid != user) {
    return Error{ErrorCode::kPermission, path + ": belongs to another user"};
  }
  if (info.st_size == 0) return Error{ErrorCode::kForeign, path + ": empty file"};
  const bip::mode_t mode = writable ? bip::read_write : bip::read_only;
  try {
    mapping->region =
        bip::mapped_region(OpenFile(mapping->fd, mode), mode, 0, static_cast<size_t>(info.st_size));
  } catch (const bip::interprocess_exception& error) {
    return system_error(path, "map", error.get_native_error());
  }
  return SharedRegion(std::move(mapping));
}

std::byte* SharedRegion::data() const {
  return static_cast<std::byte*>(mapping_->region.get_address());
}
uint64_t SharedRegion::size() const { return mapping_->region.get_size(); }
int SharedRegion::fd() const { return mapping_->fd; }
void SharedRegion::leak() noexcept { static_cast<void>(mapping_.release()); }

}  // namespace fragscope::log
