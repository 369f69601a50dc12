// What a profiler is told of the calls and the work of a process: the driver and the runtime report
// to a sink that our CUPTI installs while somebody has asked for activity records. Without one a
// call costs one load.
#pragma once

#include <atomic>
#include <cstdint>

namespace fragscope::simcuda {

enum class ApiDomain : uint8_t { kDriver, kRuntime };

struct DeviceWork {
  enum class Kind : uint8_t { kKernel, kCopy, kPeerCopy, kFill };
  Kind kind = Kind::kKernel;
  bool asynchronous = false;
  uint8_t copy_kind = 0;  // CUpti_ActivityMemcpyKind
  uint8_t source = 0;     // CUpti_ActivityMemoryKind
  uint8_t target = 0;
  const char* name = nullptr;  // of a kernel; valid during the report
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
  uint32_t value = 0;  // of a fill
  uint64_t bytes = 0;
  uint32_t device = 0, context = 0, stream = 0;
  uint32_t source_device = 0, target_device = 0;  // of a peer copy
  uint32_t source_context = 0, target_context = 0;
  uint64_t graph_node = 0;  // 0: not launched as part of a graph
  uint32_t graph = 0;
  uint64_t start_ns = 0, end_ns = 0;  // CLOCK_MONOTONIC; assumed (kernel_time.cpp)
};

// Called from any thread; none throws. enter() and work() may run under the driver's lock: they
// make no CUDA call and call no client.
struct ActivitySink {
  // A function of the API begins. True: leave() follows on the same thread.
  bool (*enter)(ApiDomain domain, const char* function);
  // May call the client's functions for buffers: never called under a lock.
  void (*leave)(int result);
  void (*work)(const DeviceWork& work);
};
using ActivityTap = std::atomic<const ActivitySink*>;

// One call of an API function, from construction to destruction. Nested calls are part of the
// outermost, as CUPTI counts.
class ApiCall {
 public:
  ApiCall(const ActivityTap* tap, ApiDomain domain, const char* function) {
    if (tap == nullptr) return;
    const ActivitySink* sink = tap->load(std::memory_order_acquire);
    if (sink != nullptr && sink->enter(domain, function)) sink_ = sink;
  }
  ~ApiCall() {
    if (sink_ != nullptr) sink_->leave(result_);
  }
  ApiCall(const ApiCall&) = delete;
  ApiCall& operator=(const ApiCall&) = delete;

  template <typename Result>
  Result ends_with(Result result) {
    result_ = static_cast<int>(result);
    return result;
  }

 private:
  const ActivitySink* sink_ = nullptr;
  int result_ = 0;
};

}  // namespace fragscope::simcuda
