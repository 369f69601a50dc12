// Which memory did the process lend to others, and which is not its own?
//
// Memory that is opened from another process or imported from another API is never counted as the
// process's device memory: its maker has it. An opened address and its owner meet by the key that
// both events have (event_kinds.def), in one run. Units: bytes. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "event/event.h"
#include "metrics/gauge.h"

namespace fragscope::metrics {

struct OpenedMemory {
  uint64_t key = kUnknown;
  uint64_t seq = 0;
  bool closed = false;
};

class SharedMemory {
 public:
  void feed(const Event& event);

  // Key -> bytes of the allocation that was exported under it; unknown when it was not seen.
  const std::map<uint64_t, std::optional<uint64_t>>& exports() const { return exports_; }
  const std::vector<OpenedMemory>& opened() const { return opened_; }
  uint64_t handles_exported() const { return handles_exported_; }  // physical memory, pools
  uint64_t handles_imported() const { return handles_imported_; }
  const Gauge& external() const { return external_; }  // memory of other APIs, as imported

 private:
  std::unordered_map<uint64_t, uint64_t> live_;  // own allocations: address -> bytes
  std::unordered_map<uint64_t, size_t> open_at_;
  std::unordered_map<uint64_t, uint64_t> external_at_;
  std::map<uint64_t, std::optional<uint64_t>> exports_;
  std::vector<OpenedMemory> opened_;
  uint64_t handles_exported_ = 0;
  uint64_t handles_imported_ = 0;
  Gauge external_;
};

}  // namespace fragscope::metrics
