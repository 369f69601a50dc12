#include "tools/subprocess.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

namespace fragscope::tools {
namespace {

struct Pipe {
  std::array<int, 2> end = {-1, -1};
  Pipe() {
    if (::pipe2(end.data(), O_CLOEXEC) != 0) end = {-1, -1};
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(size_t which) {
    if (end[which] >= 0) ::close(end[which]);
    end[which] = -1;
  }
};

// False at the end of the stream.
bool read_some(int fd, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t count = ::read(fd, buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), static_cast<size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

void read_both(Pipe& out, Pipe& err, Finished& result) {
  while (out.end[0] >= 0 || err.end[0] >= 0) {
    std::array<pollfd, 2> wait = {pollfd{out.end[0], POLLIN, 0}, pollfd{err.end[0], POLLIN, 0}};
    if (::poll(wait.data(), wait.size(), -1) < 0 && errno != EINTR) return;
    if (wait[0].revents != 0 && !read_some(out.end[0], result.out)) out.close_end(0);
    if (wait[1].revents != 0 && !read_some(err.end[0], result.err)) err.close_end(0);
  }
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> list;
  for (const std::string& text : strings) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

}  // namespace

Result<Finished> run_helper(const std::vector<std::string>& argv, const Environment& environment) {
  Pipe out, err;
  if (out.end[0] < 0 || err.end[0] < 0) {
    return Error{ErrorCode::kInternal, fmt::format("pipe: {}", std::strerror(errno))};
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.end[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.end[1], STDERR_FILENO);
  pid_t pid = 0;
  const auto arguments = pointers(argv);
  const auto variables = pointers(environment);
  const int error =
      ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: {}", argv[0], std::strerror(error))};
  }
  out.close_end(1);
  err.close_end(1);
  Finished result;
  read_both(out, err, result);
  result.exit_code = wait_for(pid);
  return result;
}

Environment own_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    environment.emplace_back(*entry);
  }
  return environment;
}

Environment helper_environment() {
  Environment environment = own_environment();
  unset_variable(environment, "LD_PRELOAD");
  return environment;
}

}  // namespace fragscope::tools
