#include "tools/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <initializer_list>

namespace fragscope::tools {
namespace {

constexpr std::initializer_list<int> kPassedOn = {SIGINT,  SIGTERM, SIGHUP,   SIGQUIT, SIGUSR1,
                                                  SIGUSR2, SIGALRM, SIGCONT,  SIGTSTP, SIGWINCH,
                                                  SIGPWR,  SIGURG,  SIGVTALRM};

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kPassedOn) sigaddset(&set, signal);
  for (const int signal : {SIGCHLD, SIGTTIN, SIGTTOU}) sigaddset(&set, signal);
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) sigaddset(&set, signal);
  return set;
}

// What the child has to get back before it becomes the command.
struct InheritedSignals {
  sigset_t mask;
  struct sigaction pipe;
  struct sigaction file_size;
  struct sigaction child;

  // A reader of our words that went away, or a file-size limit, must not end the recording; an
  // ignored SIGCHLD would hide how the command ended.
  void take_over() {
    const sigset_t watched = watched_signals();
    sigprocmask(SIG_BLOCK, &watched, &mask);
    struct sigaction action {};
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, &pipe);
    sigaction(SIGXFSZ, &action, &file_size);
    action.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &action, &child);
  }
  void give_back() const {
    sigaction(SIGPIPE, &pipe, nullptr);
    sigaction(SIGXFSZ, &file_size, nullptr);
    sigaction(SIGCHLD, &child, nullptr);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
  }
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> list;
  for (const std::string& text : strings) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

Error exec_error(const std::string& name, int error) {
  const auto code = error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kPermission;
  return Error{code, fmt::format("{}: {}", name, std::strerror(error))};
}

// 0 when the pipe was closed by a successful exec.
int read_exec_errno(int fd) {
  int error = 0;
  while (::read(fd, &error, sizeof error) < 0 && errno == EINTR) {
  }
  return error;
}

trace::ProcessExit exit_of(int status) {
  if (WIFSIGNALED(status)) return {trace::ExitKind::signaled, WTERMSIG(status)};
  return {trace::ExitKind::exited, WEXITSTATUS(status)};
}

}  // namespace

Result<Supervisor> Supervisor::start(const std::vector<std::string>& command,
                                     const Environment& environment) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    return Error{ErrorCode::kInternal, fmt::format("pipe: {}", std::strerror(errno))};
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const auto arguments = pointers(command);
  const auto variables = pointers(environment);
  InheritedSignals inherited{};
  inherited.take_over();
  const pid_t pid = ::fork();
  if (pid == 0) {
    inherited.give_back();
    ::execvpe(arguments[0], arguments.data(), variables.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t told = ::write(pipe[1], &error, sizeof error);
    ::_exit(127);
  }
  const int fork_error = errno;
  ::close(pipe[1]);
  const int error = pid < 0 ? 0 : read_exec_errno(pipe[0]);
  ::close(pipe[0]);
  if (pid < 0) {
    return Error{ErrorCode::kInternal, fmt::format("fork: {}", std::strerror(fork_error))};
  }
  if (error != 0) {
    ::waitpid(pid, nullptr, 0);
    return exec_error(command[0], error);
  }
  return Supervisor(pid);
}

void Supervisor::wait(std::chrono::milliseconds limit, const OnExit& on_exit) {
  if (reap(on_exit)) return;
  const sigset_t watched = watched_signals();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  timespec timeout{};
  timeout.tv_sec = seconds.count();
  timeout.tv_nsec = std::chrono::nanoseconds(limit - seconds).count();
  siginfo_t signal{};
  while (sigtimedwait(&watched, &signal, &timeout) > 0) {
    handle(signal);
    timeout = {};  // what else is waiting already
  }
  reap(on_exit);
}

void Supervisor::handle(const siginfo_t& signal) {
  const int number = signal.si_signo;
  if (number == SIGCHLD || number == SIGTTIN || number == SIGTTOU) return;
  if (ended()) {
    asked_to_stop_ = asked_to_stop_ || number == SIGINT || number == SIGTERM || number == SIGHUP ||
                     number == SIGQUIT;
    return;
  }
  if (signal.si_code == SI_KERNEL) return;  // the terminal: the command got it as well
  if (signal.si_code == SI_QUEUE) {
    ::sigqueue(pid_, number, signal.si_value);
  } else {
    ::kill(pid_, number);
  }
}

bool Supervisor::reap(const OnExit& on_exit) {
  bool any = false;
  int status = 0;
  pid_t pid = 0;
  while ((pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
    if (WIFSTOPPED(status)) {
      if (pid == pid_) follow_stop(WSTOPSIG(status));
      continue;
    }
    any = true;
    if (pid == pid_) exit_ = exit_of(status);
    on_exit(static_cast<uint32_t>(pid), exit_of(status));
  }
  has_descendants_ = pid == 0;
  return any;
}

// Only for stops that the terminal's user asked for: whoever sends SIGSTOP to the command alone
// will continue the command alone.
void Supervisor::follow_stop(int signal) const {
  if (signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU) ::kill(::getpid(), SIGSTOP);
}

}  // namespace fragscope::tools
