// What programs call that are compiled with --default-stream per-thread: every _ptsz and _ptds name
// that the headers map to (runtime_twins.def). Stream-ordered memory goes through the
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
decltype(cudaGetDriverEntryPoint) cudaGetDriverEntryPoint_ptsz;
#if CUDART_VERSION >= 13000
decltype(cudaGetDriverEntryPointByVersion) cudaGetDriverEntryPointByVersion_ptsz;
#endif
}
#pragma GCC visibility pop

namespace fragscope::simcuda {
namespace {
cudaStream_t per_thread_stream() { return cudaStreamPerThread; }
unsigned long long per_thread_flags(unsigned long long flags) {
  constexpr unsigned long long kDefault = cudaEnableDefault;
  constexpr unsigned long long kPerThread = cudaEnablePerThreadDefaultStream;
  return flags == kDefault ? kPerThread : flags;
}
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

// The default of the flags is the kind of stream that the caller was compiled for.
cudaError_t CUDARTAPI cudaGetDriverEntryPoint_ptsz(const char* name, void** out,
                                                   unsigned long long flags,
                                                   cudaDriverEntryPointQueryResult* answer) {
  return cudaGetDriverEntryPoint(name, out, per_thread_flags(flags), answer);
}
#if CUDART_VERSION >= 13000
cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion_ptsz(
    const char* name, void** out, unsigned int version, unsigned long long flags,
    cudaDriverEntryPointQueryResult* answer) {
  return cudaGetDriverEntryPointByVersion(name, out, version, per_thread_flags(flags), answer);
}
#endif

}  // extern "C"
