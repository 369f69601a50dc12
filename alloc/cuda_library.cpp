#include "alloc/cuda_library.h"

#include <dlfcn.h>

namespace fragscope::alloc {
namespace {

void* loaded_runtime() {
  for (const char* name : {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"}) {
    if (void* const library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) return library;
  }
  return nullptr;
}

template <typename Function>
void find(Function& out, void* library, const char* symbol) {
  out = reinterpret_cast<Function>(dlsym(library, symbol));
}

}  // namespace

CudaLibrary find_cuda() {
  CudaLibrary cuda;
  void* const runtime = loaded_runtime();
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (runtime == nullptr || driver == nullptr) return cuda;
  enforce::CudaFunctions& f = cuda.functions;
  find(f.malloc, runtime, "cudaMalloc");
  find(f.free, runtime, "cudaFree");
  find(f.synchronize, runtime, "cudaDeviceSynchronize");
  find(f.memory_info, runtime, "cudaMemGetInfo");
  find(f.take_last_error, runtime, "cudaGetLastError");
  find(f.event_create, driver, "cuEventCreate");
  find(f.event_record, driver, "cuEventRecord");
  find(f.event_query, driver, "cuEventQuery");
  find(f.event_synchronize, driver, "cuEventSynchronize");
  find(f.context_push, driver, "cuCtxPushCurrent_v2");
  find(f.context_pop, driver, "cuCtxPopCurrent_v2");
  find(f.context_current, driver, "cuCtxGetCurrent");
  find(f.exchange_capture_mode, driver, "cuThreadExchangeStreamCaptureMode");
  find(cuda.primary_context, driver, "cuDevicePrimaryCtxRetain");
  return cuda;
}

}  // namespace fragscope::alloc
