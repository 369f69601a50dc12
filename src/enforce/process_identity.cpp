#include "enforce/process_identity.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/pid_namespace.h"

namespace fragscope::enforce {
namespace {

struct Stat {
  char state = '?';
  long threads = 0;
  uint64_t start_ticks = 0;
};

std::optional<Stat> read_stat(uint32_t pid) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%u/stat", pid);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  char text[1024];
  const ssize_t length = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (length <= 0) return std::nullopt;
  text[length] = '\0';
  const char* const rest = std::strrchr(text, ')');  // the name before it may hold anything
  if (rest == nullptr) return std::nullopt;
  Stat stat;
  unsigned long long ticks = 0;
  // Fields 3 (state), 20 (threads) and 22 (start time).
  const int got = std::sscanf(rest + 1,
                              " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                              "%ld %*s %llu",
                              &stat.state, &stat.threads, &ticks);
  if (got != 3) return std::nullopt;
  stat.start_ticks = ticks;
  return stat;
}

}  // namespace

ProcessIdentity own_identity() {
  const auto pid = static_cast<uint32_t>(::getpid());
  const auto stat = read_stat(pid);
  return {pid, own_pid_namespace(), stat ? stat->start_ticks : 0};
}

bool holds_memory(const ProcessIdentity& process) {
  if (process.pid_namespace != own_pid_namespace()) return true;
  if (::kill(static_cast<pid_t>(process.pid), 0) != 0 && errno == ESRCH) return false;
  const auto stat = read_stat(process.pid);
  if (!stat) return true;
  if (stat->start_ticks != process.start_ticks) return false;
  // A leader that ended before its threads looks like a zombie, but the process lives.
  return (stat->state != 'Z' && stat->state != 'X') || stat->threads > 1;
}

}  // namespace fragscope::enforce
