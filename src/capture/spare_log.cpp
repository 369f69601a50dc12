#include "capture/spare_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log/log_growth.h"
#include "log/log_layout.h"
#include "log/shared_region.h"

namespace fragscope::capture {

SpareLog::SpareLog(std::string directory) : path_(std::move(directory) + "/" + log::kSpareLogName) {
  keep();
}

SpareLog::~SpareLog() { ::unlink(path_.c_str()); }

// Under a name of its own until all of it has storage: nobody takes half of one.
void SpareLog::keep() {
  struct stat info {};
  if (::lstat(path_.c_str(), &info) == 0) return;
  const std::string unready = path_ + ".part";
  ::unlink(unready.c_str());
  const int fd = ::open(unready.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return;
  const uint64_t bytes =
      log::kHeaderBytes + log::kSpareLogChunks * log::kChunkSlots * log::kSlotBytes;
  const bool ready = log::reserve_storage(fd, 0, bytes) == 0;
  ::close(fd);
  if (!ready || ::rename(unready.c_str(), path_.c_str()) != 0) ::unlink(unready.c_str());
}

}  // namespace fragscope::capture
