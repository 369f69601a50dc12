// One device as the served allocator uses it: memory, waiting, events. Real CUDA behind it
// (cuda_device.h) or a test's device.
//
// Units: bytes, device addresses, stream handles as integers; results are CUDA's error numbers, 0
// is success. Threads: synchronize() may run beside any other call; the others are called under the
// allocator's lock. Implementations make the device current as far as they need it and leave the
// thread's current device as it was.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fragscope::enforce {

using Event = void*;
using CudaResult = int;
inline constexpr CudaResult kSuccess = 0;
inline constexpr CudaResult kInvalidValue = 1;
inline constexpr CudaResult kOutOfMemory = 2;

enum class EventState : uint8_t { kDone, kPending, kFailed };

class DeviceApi {
 public:
  virtual ~DeviceApi() = default;

  // cudaMalloc and cudaFree of a segment. After a failure `address` is what CUDA left in its
  // output.
  virtual CudaResult malloc(uint64_t bytes, uint64_t& address) = 0;
  virtual CudaResult free(uint64_t address) = 0;
  // cudaDeviceSynchronize.
  virtual CudaResult synchronize() = 0;
  // False: the calling thread may free memory under a capture (its capture mode is relaxed), where
  // waiting for the device would end the capture.
  virtual bool may_synchronize() { return true; }
  virtual bool memory_info(uint64_t& free_bytes, uint64_t& total) = 0;
  // An allocation was refused and then served all the same: takes CUDA's last error away.
  virtual void forget_last_error() = 0;

  // From now on, or no longer, graph captures are under way whose memory comes from here: segments
  // are then taken and given back in a way that captures allow.
  virtual void note_captures(bool /*under_way*/) {}

  // An event behind all work of `stream` so far; nullptr: it could not be recorded (a stream that
  // captures, a lost device).
  virtual Event record_event(uint64_t stream) = 0;
  virtual EventState query_event(Event event) = 0;
  virtual CudaResult wait_event(Event event) = 0;
  // The event may be recorded again for another block.
  virtual void drop_event(Event event) = 0;
};

}  // namespace fragscope::enforce
