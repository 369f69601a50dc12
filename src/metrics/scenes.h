// What did a device look like whenever memory was refused, and at its peak?
//
// A scene is taken after the event: what the allocator gave back before it gave up is gone already.
// Which refusals count: for a process with a block plane the allocator's own `oom` events (a
// refused cudaMalloc before a successful retry is none), else refused device allocations; refused
// page-locked host memory always. Units: bytes. Threads: one at a time. What is unknown is absent.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "metrics/layout.h"
#include "metrics/process_metrics.h"
#include "replay/event_stream.h"

namespace fragscope::metrics {

enum class SceneKind : uint8_t {
  oom,             // the framework's allocator gave up
  refused,         // CUDA refused device memory; there is no block plane
  pinned_refused,  // CUDA refused page-locked host memory
  peak,            // allocated bytes (without a block plane: CUDA's) were highest
};

// Survivors of one allocation stack, by when they were allocated.
struct Survivors {
  static constexpr size_t kWindows = 8;  // equal shares of the blocks allocated so far
  uint32_t stack = kNoStack;
  uint64_t bytes = 0;
  uint64_t blocks = 0;
  uint64_t window_bytes[kWindows] = {};
};

struct Scene {
  SceneKind kind = SceneKind::oom;
  int32_t device = 0;
  uint64_t seq = 0;
  uint64_t time_ns = 0;  // CLOCK_MONOTONIC
  uint32_t stack = kNoStack;
  std::optional<uint64_t> requested;  // rounded as the allocator does; refused…: asked of CUDA
  bool by_segment = false;            // `requested` is a segment's size
  std::optional<uint64_t> stream;     // of the request
  std::optional<uint32_t> pool;       // packed PoolName that the request was for
  std::optional<uint64_t> device_free;
  // CUDA itself had refused memory since the block before; absent: its calls were not recorded.
  std::optional<bool> refused_by_cuda;
  std::optional<uint64_t> driver_bytes;  // of this process on the device
  uint64_t pinned_bytes = 0;             // page-locked host memory of this process
  Layout layout;                         // empty without a block plane
  // How often allocated bytes had fallen by 30 % of what they had been: steps, epochs, batches.
  uint32_t descents = 0;
  std::vector<Survivors> survivors;  // by stack, most bytes first, at most 32
};

// At most `max_refusals` refusals (the first ones and the last) and each device's peak, in the
// order of the events. `measured`: of the same events.
std::vector<Scene> scenes_of(replay::EventStream& events, const ProcessMetrics& measured,
                             size_t max_refusals);

}  // namespace fragscope::metrics
