// The allocator's own trace, entry by entry, in PyTorch's order (torch.cuda.memory snapshots'
// `device_traces`).
#pragma once

#include <cstdint>
#include <string_view>

#include "model/stats.h"

namespace fragscope::model {

enum class TraceAction : uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kSegmentMap,
  kSegmentUnmap,
  kSnapshot,
  kOom,
};

// "alloc", "free_requested", … as in snapshots.
std::string_view trace_action_name(TraceAction action);

struct TraceEntry {
  TraceAction action;
  PoolKind pool;     // kind of the pool concerned
  uint64_t address;  // kOom: free bytes of the device
  uint64_t size;     // alloc and free…: requested bytes; segment…: bytes; kOom: rounded request
  uint64_t stream;   // allocation stream
};

class TraceObserver {
 public:
  virtual ~TraceObserver() = default;
  // Called from inside the allocator's methods; must not call it back.
  virtual void on_entry(const TraceEntry& entry) = 0;
};

}  // namespace fragscope::model
