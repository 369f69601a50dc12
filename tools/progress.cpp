#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace fragscope::tools {
namespace {

constexpr std::chrono::milliseconds kFirst{1000};
constexpr std::chrono::milliseconds kStep{100};
constexpr size_t kBarWidth = 30;

}  // namespace

Progress::Progress(std::string what, uint64_t total)
    : what_(std::move(what)),
      total_(total),
      enabled_(::isatty(STDERR_FILENO) == 1),
      next_(std::chrono::steady_clock::now() + kFirst) {}

Progress::~Progress() {
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void Progress::show(uint64_t done) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kStep;
  shown_ = true;
  if (total_ == 0) {
    fmt::print(stderr, "\r{} {}\033[K", done, what_);
    return;
  }
  const size_t filled = std::min<size_t>(kBarWidth, static_cast<size_t>(done * kBarWidth / total_));
  fmt::print(stderr, "\r[{}{}] {} of {} {}\033[K", std::string(filled, '#'),
             std::string(kBarWidth - filled, ' '), done, total_, what_);
}

}  // namespace fragscope::tools
