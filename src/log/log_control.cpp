#include "log/log_control.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace fragscope::log {
namespace {

struct flock first_byte(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = 0;
  lock.l_len = 1;
  return lock;
}

// Held while a mark is put in place.
class FileLock {
 public:
  explicit FileLock(int fd) : fd_(fd) { ::flock(fd_, LOCK_EX); }
  ~FileLock() { ::flock(fd_, LOCK_UN); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

}  // namespace

bool claim_log(int fd) noexcept {
  struct flock lock = first_byte(F_WRLCK);
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool is_claimed(int fd) noexcept {
  struct flock lock = first_byte(F_WRLCK);
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

Result<LogControl> LogControl::open(const std::string& path) {
  auto region = SharedRegion::open(path, true);
  if (!region) return region.error();
  if (region->size() < kHeaderBytes) {
    return Error{ErrorCode::kForeign, path + ": too short for a fragscope log"};
  }
  LogControl control(std::move(region).value());
  const LogHeader& header = control.header();
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    return Error{ErrorCode::kForeign, path + ": not a fragscope log", 0};
  }
  if (header.version > kVersion) {
    return Error{ErrorCode::kNewerVersion,
                 path + ": log version " + std::to_string(header.version) +
                     ", this build knows up to " + std::to_string(kVersion)};
  }
  if (header.version < 2 || header.header_bytes != kHeaderBytes) {
    return Error{ErrorCode::kUnsupported,
                 path + ": its recorder is too old to be asked (log version 1)"};
  }
  return control;
}

bool LogControl::set_paused(bool paused) { return header().paused.exchange(paused ? 1 : 0) != 0; }
bool LogControl::paused() const { return header().paused.load() != 0; }
uint64_t LogControl::skipped_events() const { return header().skipped_events.load(); }

Status LogControl::request_mark(std::string_view text) {
  const FileLock lock(region_.fd());
  LogHeader& h = header();
  const uint32_t wanted = h.mark_wanted.load(std::memory_order_relaxed);
  if (h.mark_done.load(std::memory_order_acquire) != wanted) {
    return Error{ErrorCode::kUnsupported,
                 "the mark before has not been taken: the process has made no call since"};
  }
  const size_t length = std::min(text.size(), kMaxRequestBytes);
  std::memcpy(h.mark_text, text.data(), length);
  h.mark_text[length] = '\0';
  h.mark_wanted.store(wanted + 1, std::memory_order_release);
  return Done{};
}

Enforcement LogControl::enforcement() const {
  if (header().version < 3) return Enforcement::none;
  const uint32_t value = header().enforcement.load(std::memory_order_acquire);
  return value <= static_cast<uint32_t>(Enforcement::pluggable) ? static_cast<Enforcement>(value)
                                                                : Enforcement::none;
}

Result<uint32_t> LogControl::request_settings(std::string_view text) {
  LogHeader& h = header();
  if (h.version < 3) {
    return Error{ErrorCode::kUnsupported, "its recorder is too old for settings (log version 2)"};
  }
  if (text.size() > kMaxRequestBytes) {
    return Error{ErrorCode::kInvalidArgument,
                 "settings of more than " + std::to_string(kMaxRequestBytes) + " bytes"};
  }
  const FileLock lock(region_.fd());
  const uint32_t wanted = h.settings_wanted.load(std::memory_order_relaxed);
  if (h.settings_done.load(std::memory_order_acquire) != wanted) {
    return Error{
        ErrorCode::kUnsupported,
        "the settings before have not been taken: the process has allocated nothing since"};
  }
  std::memcpy(h.settings_text, text.data(), text.size());
  h.settings_text[text.size()] = '\0';
  h.settings_wanted.store(wanted + 1, std::memory_order_release);
  return wanted + 1;
}

std::optional<LogControl::SettingsAnswer> LogControl::settings_answer(uint32_t number) const {
  const LogHeader& h = header();
  // Numbers wrap: how far the newest answer is ahead of this request.
  const auto ahead = [&] {
    return static_cast<int32_t>(h.settings_done.load(std::memory_order_acquire) - number);
  };
  if (ahead() < 0) return std::nullopt;
  SettingsAnswer answer;
  answer.accepted = h.settings_accepted.load(std::memory_order_relaxed) != 0;
  answer.text.assign(h.settings_answer, strnlen(h.settings_answer, kMaxRequestBytes));
  std::atomic_thread_fence(std::memory_order_acquire);
  if (ahead() == 0 && h.settings_claimed.load(std::memory_order_relaxed) == number) return answer;
  // A later request, taken by now, writes its own answer in the same place.
  return SettingsAnswer{false, true, {}};
}

uint64_t LogControl::request_flush() { return header().flush_wanted.fetch_add(1) + 1; }
uint64_t LogControl::flush_done() const { return header().flush_done.load(); }
bool LogControl::has_collector() const { return is_claimed(region_.fd()); }

}  // namespace fragscope::log
