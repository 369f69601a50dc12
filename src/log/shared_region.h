// A file mapped shared into this process. The only user of Boost.Interprocess, which maps and
// unmaps here and does nothing else: its locks, containers and allocators stay out (a killed owner
// leaves a Boost mutex locked for ever).
//
// Ownership: SharedRegion owns descriptor and mapping; moving moves both. The path's file is never
// removed here. Threads: any one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace fragscope::log {

// A log that the recorder keeps ready, of zeros and with storage for all of it: for a process that
// may not make a file as large (ulimit -f). Whoever renames it has it.
inline constexpr char kSpareLogName[] = "spare.log";
// Empty, in the run directory of a plain preload: the process was left out because its files may
// not be as large as the smallest log (ulimit -f).
inline constexpr char kFileLimitName[] = "file-limit-too-small";
inline constexpr uint64_t kSpareLogChunks = 2;

class SharedRegion {
 public:
  // Creates `path` (must not exist, is not followed if it is a link; mode 0600 whatever the umask
  // is, close-on-exec) with storage for `initial_bytes`, and maps `mapped_bytes` of it; what lies
  // beyond the storage must not be touched before log_growth reserved it.
  static Result<SharedRegion> create(const std::string& path, uint64_t initial_bytes,
                                     uint64_t mapped_bytes);

  // Opens an existing regular file (not a link or FIFO; to write: one that belongs to the effective
  // user, unless that is root) and maps its present size. kForeign when it is something else.
  static Result<SharedRegion> open(const std::string& path, bool writable);

  SharedRegion(SharedRegion&&) noexcept;
  SharedRegion& operator=(SharedRegion&&) noexcept;
  ~SharedRegion();

  std::byte* data() const;
  uint64_t size() const;
  int fd() const;

  // Gives up ownership: the mapping and descriptor live until the process ends.
  void leak() noexcept;

 private:
  struct Mapping;
  explicit SharedRegion(std::unique_ptr<Mapping> mapping);
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace fragscope::log
