// What programs call that are compiled with --default-stream per-thread: the memory, copy, launch
// and stream functions of the _ptsz and _ptds names. Stream-ordered memory goes through the
// driver's own per-thread twins (requests with flag 2), as in the vendor's runtime.
#include "simcuda/export_stub.h"
#include "simcuda/runtime/runtime_internal.h"

#pragma GCC visibility push(default)
extern "C" {
#define TWIN(symbol, base) decltype(base) symbol;
#include "simcuda/runtime/runtime_twins.def"
#undef TWIN
decltype(cudaMallocAsync) cudaMallocAsync_ptsz;
decltype(cudaMallocFromPoolAsync) cudaMallocFromPoolAsync_ptsz;
decltype(cudaFreeAsync) cudaFreeAsync_ptsz;
decltype(cudaStreamSynchronize) cudaStreamSynchronize_ptsz;
}
#pragma GCC visibility pop

namespace fragscope::simcuda {
namespace {
cudaStream_t per_thread_stream() { return cudaStreamPerThread; }
}  // namespace
}  // namespace fragscope::simcuda

using namespace fragscope::simcuda;

#define TWIN(symbol, base) \
  FS_TWIN(symbol, base, cudaStream_t, ::fragscope::simcuda::per_thread_stream)
#include "simcuda/runtime/runtime_twins.def"
#undef TWIN

extern "C" {

cudaError_t CUDARTAPI cudaMallocAsync_ptsz(void** out, size_t bytes, cudaStream_t stream) {
  return call_bound([&](const DriverCalls& calls) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return calls.cuMemAllocAsync_ptsz(reinterpret_cast<CUdeviceptr*>(out), bytes, stream);
  });
}
cudaError_t CUDARTAPI cudaMallocFromPoolAsync_ptsz(void** out, size_t bytes, cudaMemPool_t pool,
                                                   cudaStream_t stream) {
  return call_bound([&](const DriverCalls& calls) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return calls.cuMemAllocFromPoolAsync_ptsz(reinterpret_cast<CUdeviceptr*>(out), bytes, pool,
                                              stream);
  });
}
cudaError_t CUDARTAPI cudaFreeAsync_ptsz(void* address, cudaStream_t stream) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuMemFreeAsync_ptsz(as_device(address), stream);
  });
}
cudaError_t CUDARTAPI cudaStreamSynchronize_ptsz(cudaStream_t stream) {
  return call_bound(
      [&](const DriverCalls& calls) { return calls.cuStreamSynchronize_ptsz(stream); });
}

}  // extern "C"
