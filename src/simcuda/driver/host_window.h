// Where memory of the host lies that the simulated driver allocates: pinned and managed memory, and
// the objects behind handles. Fixed windows, lowest address first, so addresses repeat from run to
// run whatever the system's randomisation does.
//
// Above the devices' windows (model/device_memory.h), below the places of programs and libraries.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/free_ranges.h"
#include "model/device_memory.h"

namespace fragscope::simcuda {

inline constexpr uint64_t kHostWindowBase = model::device_window(model::kMaxDevices);
inline constexpr uint64_t kHostWindowBytes = 0x0400'0000'0000;  // 4 TiB
inline constexpr uint64_t kHandleWindowBase = kHostWindowBase + kHostWindowBytes;
inline constexpr uint64_t kHandleWindowBytes = 0x0100'0000'0000;  // 1 TiB

// Not thread-safe: callers lock.
class HostWindow {
 public:
  HostWindow(uint64_t base, uint64_t bytes) : base_(base), bytes_(bytes) { holes_[base] = bytes; }

  // Zeroed memory at the lowest free address of the window. A place that something else has taken
  // is passed over for good; without a place in the window the system chooses one. MAP_FAILED: no
  // memory, and errno says why.
  void* map(size_t bytes, int flags = 0);
  // What map() returned for that many bytes.
  void unmap(void* at, size_t bytes);

 private:
  void cut(FreeRanges::iterator hole, uint64_t bytes);

  uint64_t base_;
  uint64_t bytes_;
  FreeRanges holes_;
};

// Base of the objects that handles point to. Objects of about one size rise in the order of their
// creation and the lowest free place is used again: PyTorch sorts by streams, and the log of calls
// (write_books) names contexts, graphs, pools and arrays. Any thread.
struct PlacedObject {
  static void* operator new(size_t bytes);
  static void operator delete(void* object, size_t bytes);
};

}  // namespace fragscope::simcuda
