// Real CUDA as the policy uses it: one library's functions, and the caching allocator's segments
// taken from them.
//
// Threads: callers hold the policy's lock.
#pragma once

#include "model/segment_provider.h"
#include "shim/policy.h"

namespace fragscope::shim::policy {

// The functions that belong together: those of the library that a malloc was found in.
struct Backend {
  Library library = Library::none;
  RealMalloc malloc = nullptr;
  RealFree free = nullptr;
  int (*synchronize)() = nullptr;
  int (*memory_info)(size_t* free_bytes, size_t* total) = nullptr;
  int (*take_last_error)() = nullptr;  // runtime only

  explicit operator bool() const {
    return malloc != nullptr && free != nullptr && synchronize != nullptr && memory_info != nullptr;
  }
};

// The functions next to `function`, a cudaMalloc, cuMemAlloc_v2, cudaFree or cuMemFree_v2.
Backend backend_of(Library library, const void* function) noexcept;

// Segments from real CUDA. Each call is an event of the driver plane.
class RealSegments final : public model::SegmentProvider {
 public:
  void use(const Backend& backend) { backend_ = backend; }

  std::optional<uint64_t> device_malloc(uint64_t bytes) override;
  void device_free(uint64_t address, uint64_t bytes) override;
  model::DeviceMemoryInfo memory_info() override;

  // Result of the last device_malloc.
  int last_result() const { return last_result_; }
  // What CUDA left in the output of the last device_malloc(); 0 after a failure.
  DevicePtr last_address() const { return last_address_; }

 private:
  Backend backend_;
  int last_result_ = kSuccess;
  DevicePtr last_address_ = 0;
};

}  // namespace fragscope::shim::policy
