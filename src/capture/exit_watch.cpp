#include "capture/exit_watch.h"

#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fragscope::capture {
namespace {

// linux/pidfd.h of 6.15, which distributions do not have yet.
constexpr uint64_t kInfoExit = 1u << 3;
struct PidfdInfo {
  uint64_t mask;
  uint64_t cgroup;
  uint32_t ids[11];
  int32_t exit_code;  // as wait() gives it
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);

bool read_info(int fd, PidfdInfo& info) {
  info = {};
  info.mask = kInfoExit;
  return fd >= 0 && ::ioctl(fd, kGetInfo, &info) == 0;
}

}  // namespace

ExitWatch::ExitWatch(uint32_t pid)
    : fd_(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0))) {
  PidfdInfo info{};
  if (fd_ < 0 || read_info(fd_, info)) return;
  ::close(fd_);
  fd_ = -1;
}

ExitWatch::~ExitWatch() {
  if (fd_ >= 0) ::close(fd_);
}

std::optional<trace::ProcessExit> ExitWatch::exit() const {
  PidfdInfo info{};
  if (!read_info(fd_, info) || (info.mask & kInfoExit) == 0) return std::nullopt;
  if (WIFSIGNALED(info.exit_code)) {
    return trace::ProcessExit{trace::ExitKind::signaled, WTERMSIG(info.exit_code)};
  }
  return trace::ProcessExit{trace::ExitKind::exited, WEXITSTATUS(info.exit_code)};
}

}  // namespace fragscope::capture
