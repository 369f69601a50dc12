#include "tools/run_news.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>

#include "base/bytes.h"
#include "tools/command.h"

namespace fragscope::tools {
namespace {

std::string amount(uint64_t bytes) {
  return bytes == UINT64_MAX ? "memory of unknown size" : format_size(bytes);
}

std::string place(int32_t device) {
  return device < 0 ? std::string("a device") : fmt::format("device {}", device);
}

}  // namespace

void RunNews::tell(const capture::Collector::News& news, capture::Collector& collector) {
  log::LogNotices& told = told_[news.pid];
  if (news.notices.warnings != told.warnings) {
    const std::string holder = scope_ == enforce::LimitScope::run
                                   ? std::string("all processes of the run together hold")
                                   : fmt::format("process {} holds", news.pid);
    say(fmt::format("{} {} of {} on {} (--warn-at)", holder, amount(news.notices.warn_used),
                    amount(news.notices.warn_of), place(news.notices.warn_device)));
  }
  const uint32_t more = news.notices.ooms - told.ooms;
  const uint32_t stops = news.notices.ooms_stopped - told.ooms_stopped;
  const bool first = told.ooms == 0;
  told = news.notices;
  if (more == 0) return;
  tell_oom(news.pid, news.notices, more, stops);
  if (first && on_oom_.action == enforce::OomAction::report) explain(news.pid, collector);
}

void RunNews::tell_oom(uint32_t pid, const log::LogNotices& notices, uint32_t more,
                       uint32_t stops) {
  const std::string what =
      more > 1 ? fmt::format("process {}: {} requests ran out of memory, the last for {} on {}",
                             pid, more, amount(notices.oom_requested), place(notices.oom_device))
               : fmt::format("process {}: a request for {} on {} ran out of memory", pid,
                             amount(notices.oom_requested), place(notices.oom_device));
  constexpr int kMostLines = 3;
  const int line = stops > 0 ? 0 : ++lines_[pid];
  if (line > kMostLines) return;
  if (stops > 0) {
    say(
        fmt::format("{}; it is stopped: look with `fragscope explain {}`, go on with `kill -CONT "
                    "{}`",
                    what, directory_, pid));
  } else {
    say(fmt::format("{}; the record of it is in {}{}", what, directory_,
                    line == kMostLines ? "; further ones are recorded and not told" : ""));
  }
}

// The same program again, its answer on stderr: stdout is the command's.
void RunNews::explain(uint32_t pid, capture::Collector& collector) {
  const std::array<const char*, 4> arguments = {"fragscope", "explain", directory_.c_str(),
                                                nullptr};
  const pid_t child = ::fork();
  if (child == 0) {
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    ::execv("/proc/self/exe", const_cast<char* const*>(arguments.data()));
    ::_exit(127);
  }
  if (child < 0) {
    warn(fmt::format("process {}: its failure cannot be explained now; use `fragscope explain {}`",
                     pid, directory_));
    return;
  }
  explainers_.insert(child);
  collector.leave_out(static_cast<uint32_t>(child));
}

}  // namespace fragscope::tools
