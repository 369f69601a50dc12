// Real CUDA as the policy uses it: the functions that belong to the one a program called, and a
// device whose segment calls are events of the driver plane.
//
// Threads: any.
#pragma once

#include "enforce/cuda_device.h"
#include "shim/policy.h"

namespace fragscope::shim::policy {

struct Backend {
  Library library = Library::none;
  enforce::CudaFunctions cuda;
};

// The functions next to `function`, a cudaMalloc, cuMemAlloc_v2, cudaFree, …, found once; nullptr:
// that library has not all that is needed, or too many libraries have been met.
const Backend* backend_of(Library library, const void* function) noexcept;

// One context's device. Calls to CUDA are those of the library that the program is calling: the
// error codes and the last error are then that library's.
class RecordedDevice final : public enforce::DeviceApi {
 public:
  RecordedDevice(const Backend& backend, void* context) : cuda_(backend.cuda, context) {}

  // For calls of this thread, until it ends.
  class Calling {
   public:
    explicit Calling(const Backend& backend) noexcept;
    ~Calling();
    Calling(const Calling&) = delete;
    Calling& operator=(const Calling&) = delete;
  };

  enforce::CudaResult malloc(uint64_t bytes, uint64_t& address) override;
  enforce::CudaResult free(uint64_t address) override;
  enforce::CudaResult synchronize() override;
  bool may_synchronize() override { return cuda_.may_synchronize(); }
  bool memory_info(uint64_t& free_bytes, uint64_t& total) override;
  void forget_last_error() override;
  enforce::Event record_event(uint64_t stream) override { return cuda_.record_event(stream); }
  enforce::EventState query_event(enforce::Event event) override {
    return cuda_.query_event(event);
  }
  enforce::CudaResult wait_event(enforce::Event event) override { return cuda_.wait_event(event); }
  void drop_event(enforce::Event event) override { cuda_.drop_event(event); }

  void* context() const { return cuda_.context(); }

 private:
  enforce::CudaDevice cuda_;  // events: the driver's, whoever calls
};

}  // namespace fragscope::shim::policy
