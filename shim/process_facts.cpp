#include "shim/process_facts.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ctime>

namespace fragscope::shim {
namespace {

uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

uint64_t start_ticks() noexcept {
  const int fd = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[1024];
  const ssize_t count = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (count <= 0) return 0;
  text[count] = '\0';
  const char* at = std::strrchr(text, ')');  // end of field 2, which may hold anything
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
}

void program_name(char* out, size_t bytes) noexcept {
  char path[4096];
  const ssize_t count = ::readlink("/proc/self/exe", path, sizeof path - 1);
  path[count > 0 ? count : 0] = '\0';
  const char* slash = std::strrchr(path, '/');
  const char* name = slash != nullptr ? slash + 1 : path;
  if (*name == '\0') name = "unknown";
  std::strncpy(out, name, bytes - 1);
  out[bytes - 1] = '\0';
}

uint64_t random_id() noexcept {
  uint64_t id = 0;
  if (getrandom(&id, sizeof id, GRND_NONBLOCK) != sizeof id || id == 0) {
    id = clock_ns(CLOCK_MONOTONIC) << 16 ^ static_cast<uint64_t>(getpid());
  }
  return id | 1;
}

uint32_t thread_id() noexcept { return static_cast<uint32_t>(syscall(SYS_gettid)); }
uint64_t monotonic_ns() noexcept { return clock_ns(CLOCK_MONOTONIC); }
uint64_t realtime_ns() noexcept { return clock_ns(CLOCK_REALTIME); }

}  // namespace fragscope::shim
