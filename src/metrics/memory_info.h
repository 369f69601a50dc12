// Do the books agree with what cudaMemGetInfo told the program?
//
// At each of the program's own calls: the device's used bytes (total less free) less what the books
// of this process have. What is left is unexplained: the context, other processes, what pools and
// rounding hold beyond the blocks, allocations that were not seen. The level says little; if it
// stays, nothing went unseen in between. Units: bytes. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>

#include "event/event.h"

namespace fragscope::metrics {

struct MemoryInfo {
  uint64_t answers = 0;
  uint64_t used_bytes = 0;        // by the last answer
  int64_t first_unexplained = 0;  // negative: the books have more than the device
  int64_t last_unexplained = 0;
};

class MemoryInfos {
 public:
  // `held`: device memory of the process by the books, at this event.
  void feed(const Event& event, uint64_t held) {
    const bool known = event.kind == EventKind::memory_info && event.result == 0 &&
                       event.size != kUnknown && event.aux != kUnknown && event.aux <= event.size;
    if (!known) return;
    MemoryInfo& info = devices_[event.device];
    info.used_bytes = event.size - event.aux;
    info.last_unexplained = static_cast<int64_t>(info.used_bytes - held);
    if (info.answers++ == 0) info.first_unexplained = info.last_unexplained;
  }
  const std::map<int32_t, MemoryInfo>& devices() const { return devices_; }

 private:
  std::map<int32_t, MemoryInfo> devices_;
};

}  // namespace fragscope::metrics
