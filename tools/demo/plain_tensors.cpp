#include "tools/demo/plain_tensors.h"

#include <cuda_runtime_api.h>

#include "base/bytes.h"

namespace fragscope::demo {

std::optional<uint64_t> PlainTensors::allocate(uint64_t bytes) {
  void* address = nullptr;
  const cudaError_t error = cudaMalloc(&address, bytes);
  if (error == cudaSuccess) return reinterpret_cast<uint64_t>(address);
  failure_ = "cudaMalloc of " + format_size(bytes) + ": " + cudaGetErrorString(error);
  return std::nullopt;
}

void PlainTensors::release(uint64_t address) { cudaFree(reinterpret_cast<void*>(address)); }

std::string PlainTensors::end_step() {
  cudaDeviceSynchronize();
  size_t free = 0;
  size_t total = 0;
  cudaMemGetInfo(&free, &total);
  return "device memory in use " + format_size(total - free);
}

}  // namespace fragscope::demo
