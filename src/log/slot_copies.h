// Copies of parts of a log file, by pread(): a file that its owner cuts short is a short read and
// not a SIGBUS.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "log/log_layout.h"

namespace fragscope::log {

inline constexpr uint64_t kBatchSlots = 1024;  // copied at a time

// Fills `out` from `offset` on; what the file does not hold (any more) becomes zero, which no
// commit word is.
inline Status pread_zero_filled(int fd, uint64_t offset, std::span<std::byte> out,
                                const std::string& path) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t count =
        ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return Error{ErrorCode::kPermission, path + ": cannot read: " + std::strerror(errno), offset};
    }
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  std::memset(out.data() + done, 0, out.size() - done);
  return Done{};
}

inline const Slot& slot_at(const std::vector<std::byte>& copies, uint64_t i) {
  return *reinterpret_cast<const Slot*>(copies.data() + i * kSlotBytes);
}

}  // namespace fragscope::log
