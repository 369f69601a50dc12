// Where the caching allocator gets its segments from: a simulated device, a trace, or real CUDA.
//
// Units: bytes and device addresses. Threads: called only from inside the allocator's methods.
// Errors: out of memory is nullopt/false; a provider has no other way to fail.
#pragma once

#include <cstdint>
#include <optional>

namespace fragscope::model {

struct DeviceMemoryInfo {
  uint64_t free = 0;   // bytes that the device still has
  uint64_t total = 0;  // bytes that the device has at all
};

class SegmentProvider {
 public:
  virtual ~SegmentProvider() = default;

  // cudaMalloc and cudaFree of one segment.
  virtual std::optional<uint64_t> device_malloc(uint64_t bytes) = 0;
  virtual void device_free(uint64_t address, uint64_t bytes) = 0;

  // cudaMemGetInfo: asked at an OOM, for a memory fraction and for the range of an expandable
  // segment.
  virtual DeviceMemoryInfo memory_info() = 0;

  // A device that runs for real: records an event behind the work of `stream` so far and keeps it.
  // True: it did; the allocator's owner tells with complete_until() when it is done. Default: the
  // allocator's own books of work() and complete() are all there is.
  virtual bool record_event(uint64_t /*stream*/) { return false; }
  // A flush is about to take all recorded events for done: waits for them.
  virtual void wait_for_events() {}

  // Expandable segments: address space, and memory for parts of it. Both sizes are multiples of the
  // segment's page (2 MiB small, `large_segment_size` large). Default: the device cannot do it.
  virtual std::optional<uint64_t> reserve(uint64_t /*bytes*/) { return std::nullopt; }
  virtual bool map(uint64_t /*address*/, uint64_t /*bytes*/) { return false; }
  virtual void unmap(uint64_t /*address*/, uint64_t /*bytes*/) {}
  virtual void release(uint64_t /*address*/, uint64_t /*bytes*/) {}
};

}  // namespace fragscope::model
