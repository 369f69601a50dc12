#include "tools/log_place.h"

#include <fmt/format.h>
#include <grp.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "log/log_layout.h"

namespace fragscope::tools {
namespace {

// Below this a memory file system is left alone: a log must hold some chunks to be of use.
constexpr uint64_t kLeastFreeBytes = 48ull << 20;
constexpr uint64_t kShareOfFree = 8;

uint64_t free_memory_bytes(const std::string& directory) {
  struct statfs status {};
  if (directory.empty() || ::access(directory.c_str(), W_OK | X_OK) != 0 ||
      ::statfs(directory.c_str(), &status) != 0 || status.f_type != TMPFS_MAGIC) {
    return 0;
  }
  return status.f_bavail * static_cast<uint64_t>(status.f_bsize);
}

// A user's own directory is closed to others of a group, whatever lies in it.
bool others_may_enter(const std::string& directory) {
  struct stat info {};
  return ::stat(directory.c_str(), &info) == 0 && (info.st_mode & S_IXOTH) != 0;
}

}  // namespace

std::vector<std::string> memory_directories() {
  std::vector<std::string> found;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/') found.emplace_back(runtime);
  found.emplace_back("/dev/shm");
  return found;
}

LogPlace choose_log_place(const LogPlaceRequest& request) {
  const uint64_t wanted = request.log_bytes.value_or(kDefaultRunLogBytes);
  LogPlace place{request.run_directory, false, wanted, {}};
  if (request.durable) {
    place.reason = "--durable";
    return place;
  }
  for (const std::string& parent : memory_directories()) {
    const uint64_t free = free_memory_bytes(parent);
    if (free < kLeastFreeBytes || (request.group && !others_may_enter(parent))) continue;
    std::string name = parent + "/fragscope-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) continue;
    place.directory = name;
    place.in_memory = true;
    if (!request.log_bytes) place.log_bytes = std::min(wanted, free / kShareOfFree);
    return place;
  }
  place.reason = fmt::format("no memory file system with {} MiB free", kLeastFreeBytes >> 20);
  return place;
}

Result<gid_t> find_group(const std::string& text) {
  gid_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end) return number;
  errno = 0;
  if (const group* const found = ::getgrnam(text.c_str())) return found->gr_gid;
  return Error{ErrorCode::kInvalidArgument, "no group is called '" + text + "'"};
}

Status share_with_group(const std::string& path, gid_t group) {
  struct stat info {};
  const bool seen = ::lstat(path.c_str(), &info) == 0;
  const mode_t mode = info.st_mode & 07777;
  if (seen && ::lchown(path.c_str(), static_cast<uid_t>(-1), group) == 0 &&
      ::chmod(path.c_str(), mode | (mode & S_IRWXU) >> 3) == 0) {
    return Done{};
  }
  return Error{ErrorCode::kPermission, fmt::format("{}: cannot be given to group {}: {}", path,
                                                   group, std::strerror(errno))};
}

}  // namespace fragscope::tools
