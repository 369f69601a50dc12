#include "tools/stale_logs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/bytes.h"
#include "capture/finish_run.h"
#include "tools/command.h"
#include "tools/log_place.h"
#include "trace/run_directory.h"

namespace fragscope::tools {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "fragscope-";

std::string pid_namespace() {
  std::error_code failed;
  return fs::read_symlink("/proc/self/ns/pid", failed).string();
}

bool is_held(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return true;  // gone meanwhile
  const bool free = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  ::close(fd);
  return !free;
}

uint64_t bytes_in(const fs::path& directory) {
  constexpr uint64_t kBlock = 512;
  uint64_t bytes = 0;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(directory, failed)) {
    struct stat info {};
    if (::lstat(entry.path().c_str(), &info) == 0) {
      bytes += static_cast<uint64_t>(info.st_blocks) * kBlock;
    }
  }
  return bytes;
}

bool records_a_living_process(const fs::path& directory) {
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(directory, failed)) {
    if (capture::is_log_of_living_process(entry.path())) return true;
  }
  return false;
}

std::optional<StaleLogs> stale_logs_in(const fs::path& directory) {
  struct stat info {};
  const bool ours = directory.filename().string().starts_with(kPrefix) &&
                    ::lstat(directory.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                    info.st_uid == ::geteuid();
  if (!ours) return std::nullopt;
  std::ifstream owner(directory / kOwnerFile);
  StaleLogs stale;
  std::string name_space;
  const bool told = std::getline(owner, name_space) && std::getline(owner, stale.run_directory);
  if (!told || name_space != pid_namespace() || is_held(directory / kOwnerFile) ||
      records_a_living_process(directory)) {
    return std::nullopt;
  }
  stale.log_directory = directory;
  stale.bytes = bytes_in(directory);
  return stale;
}

// All files in it are the recorder's own: nobody else may write there.
void remove_logs(const StaleLogs& stale) {
  std::error_code failed;
  fs::remove_all(stale.log_directory, failed);
}

bool is_of_run(const StaleLogs& stale) {
  const auto info = trace::read_run_info(stale.run_directory);
  return info.ok() && info->log_directory == stale.log_directory;
}

bool collect(const StaleLogs& stale) {
  const std::string size = format_size(stale.bytes);
  if (!is_of_run(stale)) {
    remove_logs(stale);
    say(fmt::format("removed {} ({}): its run directory {} is gone", stale.log_directory, size,
                    stale.run_directory));
    return true;
  }
  if (finish_named_run(stale.run_directory) != kExitOk) return false;
  remove_logs(stale);
  say(fmt::format("removed {} ({})", stale.log_directory, size));
  return true;
}

}  // namespace

int hold_log_directory(const std::string& log_directory, const std::string& run_directory) {
  const std::string path = log_directory + "/" + kOwnerFile;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  const std::string text = pid_namespace() + "\n" + run_directory + "\n";
  const bool held = ::flock(fd, LOCK_EX | LOCK_NB) == 0 &&
                    ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (held) return fd;
  ::close(fd);
  ::unlink(path.c_str());
  return -1;
}

void release_log_directory(int held, const std::string& log_directory) {
  if (held < 0) return;
  ::close(held);
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(log_directory, failed)) {
    if (entry.path().extension() == ".fslog") return;
  }
  fs::remove(log_directory + "/" + kOwnerFile, failed);
}

std::vector<StaleLogs> find_stale_logs() {
  std::vector<StaleLogs> found;
  for (const std::string& parent : memory_directories()) {
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(parent, failed)) {
      if (auto stale = stale_logs_in(entry.path())) found.push_back(std::move(*stale));
    }
  }
  return found;
}

int finish_named_run(const std::string& run_directory) {
  const auto done = capture::finish_run(run_directory);
  if (!done) return fail(done.error());
  for (const std::string& line : done->warnings) warn(line);
  say(fmt::format("collected the logs of {} process{} into {}{}", done->finished,
                  done->finished == 1 ? "" : "es", run_directory,
                  done->living > 0 ? fmt::format("; {} still run", done->living) : ""));
  return done->warnings.empty() ? kExitOk : kExitNo;
}

int collect_stale_logs() {
  const std::vector<StaleLogs> all = find_stale_logs();
  if (all.empty()) say("no logs of killed recorders");
  const auto failed =
      std::count_if(all.begin(), all.end(), [](const auto& stale) { return !collect(stale); });
  return failed == 0 ? kExitOk : kExitNo;
}

}  // namespace fragscope::tools
