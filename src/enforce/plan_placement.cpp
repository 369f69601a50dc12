#include "enforce/plan_placement.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace fragscope::enforce {

bool PlanPlacement::take_arena() {
  if (arena_ != 0) return true;
  uint64_t address = 0;
  if (api_.malloc(follower_.arena_bytes(), address) != kSuccess) {
    api_.forget_last_error();  // the program's request is not refused yet
    given_up_ = true;
    return false;
  }
  arena_ = address;
  if (sink_ != nullptr) sink_->on_segment_alloc(0, arena_, follower_.arena_bytes());
  return true;
}

std::optional<PlacedBlock> PlanPlacement::offer(uint64_t requested, uint64_t stream) {
  if (given_up_) return std::nullopt;
  const std::optional<uint64_t> offset = follower_.offer(requested, stream);
  if (!offset) return std::nullopt;
  if (!take_arena()) {
    static_cast<void>(follower_.release(*offset));
    return std::nullopt;
  }
  return PlacedBlock{arena_ + *offset, plan_size(requested)};
}

void PlanPlacement::release(uint64_t address) {
  static_cast<void>(follower_.release(address - arena_));
}

bool PlanPlacement::contains(uint64_t address) const {
  return arena_ != 0 && address >= arena_ && address - arena_ < follower_.arena_bytes();
}

void PlanPlacement::release_cached() {
  if (arena_ == 0 || follower_.live_bytes() != 0) return;
  if (api_.free(arena_) != kSuccess) return;  // which waits for the device
  if (sink_ != nullptr) sink_->on_segment_free(0, arena_, follower_.arena_bytes());
  arena_ = 0;
  follower_.synchronized();
}

Result<Plan> load_plan(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe never answers
  if (fd < 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kPermission;
    return Error{code, path + ": " + std::strerror(errno)};
  }
  struct stat about {};
  if (::fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
    ::close(fd);
    return Error{ErrorCode::kForeign, path + ": not a file"};
  }
  std::string text;
  char part[65536];
  ssize_t got = 0;
  while ((got = ::read(fd, part, sizeof part)) > 0) text.append(part, static_cast<size_t>(got));
  const int error = errno;
  ::close(fd);
  if (got < 0) return Error{ErrorCode::kPermission, path + ": " + std::strerror(error)};
  Result<Plan> plan = parse_plan(text);
  if (!plan) return Error{plan.error().code, path + ": " + plan.error().text, plan.error().offset};
  return plan;
}

}  // namespace fragscope::enforce
