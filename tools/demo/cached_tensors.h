// Tensors by a caching allocator over cudaMalloc, as PyTorch has it: src/model's allocator, which
// takes the same decisions, with the CUDA runtime behind it. Publishes its blocks and segments
// through fragscope_api.h, as any framework could.
//
// Device 0, the default stream. Threads: one.
#pragma once

#include <memory>

#include "model/caching_allocator.h"
#include "tools/demo/mapped_ranges.h"
#include "tools/demo/tensor_memory.h"

namespace fragscope::demo {

// cudaMalloc, cudaFree and cudaMemGetInfo as a source of segments; expandable ones by the driver.
class CudaSegments final : public model::SegmentProvider {
 public:
  std::optional<uint64_t> device_malloc(uint64_t bytes) override;
  void device_free(uint64_t address, uint64_t bytes) override;
  model::DeviceMemoryInfo memory_info() override;
  std::optional<uint64_t> reserve(uint64_t bytes) override;
  bool map(uint64_t address, uint64_t bytes) override;
  void unmap(uint64_t address, uint64_t bytes) override;
  void release(uint64_t address, uint64_t bytes) override;

 private:
  MappedRanges ranges_;
};

class CachedTensors final : public TensorMemory, private model::TraceObserver {
 public:
  explicit CachedTensors(const model::AllocatorConfig& config);
  ~CachedTensors() override = default;

  std::optional<uint64_t> allocate(uint64_t bytes) override;
  void release(uint64_t address) override;
  std::string end_step() override;
  std::string failure() const override;

 private:
  void on_entry(const model::TraceEntry& entry) override;

  CudaSegments segments_;
  model::CachingAllocator allocator_;
};

}  // namespace fragscope::demo
