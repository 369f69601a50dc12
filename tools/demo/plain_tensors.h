// Tensors by cudaMalloc and cudaFree, one call each: a program without an allocator of its own.
// Device 0, the default stream. Threads: one.
#pragma once

#include "tools/demo/tensor_memory.h"

namespace fragscope::demo {

class PlainTensors final : public TensorMemory {
 public:
  std::optional<uint64_t> allocate(uint64_t bytes) override;
  void release(uint64_t address) override;
  std::string end_step() override;
  std::string failure() const override { return failure_; }

 private:
  std::string failure_;
};

}  // namespace fragscope::demo
