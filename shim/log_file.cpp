#include "shim/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/file_limit.h"
#include "shim/process_facts.h"

namespace fragscope::shim {
namespace {

constexpr uint64_t kChunkBytes = log::kChunkSlots * log::kSlotBytes;
constexpr uint64_t kSmallestLog = 2 * kChunkBytes;
constexpr uint64_t kLargestLog = 1ull << 40;  // address space only; storage grows with use

std::string environment(const char* name) {
  const char* const value = secure_getenv(name);
  return value != nullptr ? value : "";
}

std::string file_name(uint64_t random) {
  char name[96];
  std::snprintf(name, sizeof name, "/%d-%llu-%016llx.fslog", static_cast<int>(getpid()),
                static_cast<unsigned long long>(start_ticks()),
                static_cast<unsigned long long>(random));
  return name;
}

// The run directory of a plain preload; "" when it cannot be made.
std::string run_directory() {
  std::string path = environment("FRAGSCOPE_OUT");
  if (path.empty()) {
    char program[64];
    program_name(program, sizeof program);
    path = std::string("./fragscope-") + program + "-" + std::to_string(getpid()) + ".fsr";
  }
  if (mkdir(path.c_str(), 0700) == 0) return path;
  struct stat existing {};
  const bool usable = stat(path.c_str(), &existing) == 0 && S_ISDIR(existing.st_mode) &&
                      existing.st_uid == geteuid();
  return usable ? path : "";
}

void fill_header(log::LogHeader& header) {
  header.pid = static_cast<uint32_t>(getpid());
  header.start_ticks = start_ticks();
  header.realtime_ns = realtime_ns();
  header.monotonic_ns = monotonic_ns();
  program_name(header.program, sizeof header.program);
  std::strncpy(header.shim_version, FRAGSCOPE_VERSION, sizeof header.shim_version - 1);
}

// Behind the slots of what events refer to: stacks, modules, names.
uint64_t first_slot_of_ring(uint64_t slots) {
  constexpr uint64_t kShareOfBlobs = 4;
  const uint64_t chunks = slots / log::kChunkSlots;
  return std::max<uint64_t>(chunks / kShareOfBlobs, 1) * log::kChunkSlots;
}

struct Wanted {
  uint64_t capacity_bytes;
  bool ring;
  uint64_t random;
};

// Another process may have taken the spare a moment ago: the recorder makes the next one with its
// next look, which comes every 20 ms.
bool rename_spare(const std::string& spare, const std::string& path) {
  constexpr int kMostSteps = 1000;
  constexpr timespec kStep{0, 1'000'000};
  for (int step = 0; step < kMostSteps; ++step) {
    if (std::rename(spare.c_str(), path.c_str()) == 0) return true;
    if (errno != ENOENT) return false;
    nanosleep(&kStep, nullptr);
  }
  return false;
}

// The log that `fragscope run` keeps ready; whoever renames it has it.
std::optional<OpenLog> take_spare(const std::string& directory, const Wanted& wanted) {
  if (secure_getenv("FRAGSCOPE_LOG_DIR") == nullptr) return std::nullopt;  // nobody keeps one
  const std::string final_path = directory + file_name(wanted.random);
  const std::string path = final_path + ".new";
  if (!rename_spare(directory + "/" + log::kSpareLogName, path)) return std::nullopt;
  Result<log::SharedRegion> region = log::SharedRegion::open(path, true);
  const uint64_t slots = log::kSpareLogChunks * log::kChunkSlots;
  if (!region || region->size() != log::kHeaderBytes + slots * log::kSlotBytes) {
    static_cast<void>(unlink(path.c_str()));
    return std::nullopt;
  }
  const uint64_t ring_first = wanted.ring ? first_slot_of_ring(slots) : 0;
  OpenLog log{std::move(*region), {}, path, final_path, slots * log::kSlotBytes};
  log.writer = log::LogWriter(log.region.data(), log.region.fd(), slots,
                              wanted.ring ? ring_first : slots, ring_first);
  fill_header(*log.writer.header());
  return log;
}

std::optional<OpenLog> create_in(const std::string& directory, const Wanted& wanted) {
  const auto& [capacity_bytes, ring, random] = wanted;
  const std::string final_path = directory + file_name(random);
  const std::string path = final_path + ".new";
  if (capacity_bytes < kSmallestLog) return take_spare(directory, wanted);
  for (uint64_t bytes = capacity_bytes; bytes >= kSmallestLog; bytes /= 2) {
    const uint64_t slots = bytes / kChunkBytes * log::kChunkSlots;
    const uint64_t mapped = log::kHeaderBytes + slots * log::kSlotBytes;
    Result<log::SharedRegion> region =
        log::SharedRegion::create(path, log::kHeaderBytes + kChunkBytes, mapped);
    if (!region) {
      // Address space may suffice for less; a full disk or missing directory will not change.
      if (region.error().text.find("cannot map") == std::string::npos) return std::nullopt;
      continue;
    }
    const uint64_t ring_first = ring ? first_slot_of_ring(slots) : 0;
    const uint64_t ring_start = log::kHeaderBytes + ring_first * log::kSlotBytes;
    if (ring && log::reserve_storage(region->fd(), ring_start, kChunkBytes) != 0) {
      static_cast<void>(unlink(path.c_str()));
      return std::nullopt;
    }
    OpenLog log{std::move(*region), {}, path, final_path, slots * log::kSlotBytes};
    log.writer =
        log::LogWriter(log.region.data(), log.region.fd(), slots, log::kChunkSlots, ring_first);
    fill_header(*log.writer.header());
    return log;
  }
  return std::nullopt;
}

// Says in the run directory why it holds no log. The file is empty: no limit is in its way.
bool leave_note(const std::string& directory) {
  const std::string path = directory + "/" + log::kFileLimitName;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

}  // namespace

std::optional<OpenLog> create_log(uint64_t capacity_bytes, bool ring, uint64_t random) noexcept
    try {
  // A log that could not grow to its size would stop there, drained or not.
  const uint64_t allowed = file_limit_bytes() - std::min(file_limit_bytes(), log::kHeaderBytes);
  const Wanted wanted{std::min(std::clamp(capacity_bytes, kSmallestLog, kLargestLog), allowed),
                      ring, random};
  for (const char* variable : {"FRAGSCOPE_LOG_DIR", "FRAGSCOPE_LOG_FALLBACK_DIR"}) {
    const std::string directory = environment(variable);
    if (directory.empty()) continue;
    if (std::optional<OpenLog> log = create_in(directory, wanted)) return log;
  }
  // Under `fragscope run` nothing is put where nobody asked for it.
  if (secure_getenv("FRAGSCOPE_LOG_DIR") != nullptr && secure_getenv("FRAGSCOPE_OUT") == nullptr) {
    return std::nullopt;
  }
  const std::string directory = run_directory();
  if (directory.empty()) return std::nullopt;
  std::optional<OpenLog> log = create_in(directory, wanted);
  if (!log && !(allowed < kSmallestLog && leave_note(directory))) {
    rmdir(directory.c_str());  // only when it is empty
  }
  return log;
} catch (...) {
  return std::nullopt;
}

void publish_log(OpenLog& log) noexcept {
  static_cast<void>(std::rename(log.path.c_str(), log.final_path.c_str()));
  log.region.leak();
}

void discard_log(OpenLog& log) noexcept { static_cast<void>(unlink(log.path.c_str())); }

void note_driver_seen() noexcept {
  const char* const directory = secure_getenv("FRAGSCOPE_LOG_DIR");
  char path[4096];
  if (directory == nullptr) return;
  const int length = std::snprintf(path, sizeof path, "%s/.driver-seen", directory);
  if (length <= 0 || static_cast<size_t>(length) >= sizeof path) return;
  const int fd = ::open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd >= 0) ::close(fd);
}

}  // namespace fragscope::shim
