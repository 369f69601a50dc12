// A stand-in libcudart.so.MAJOR of a few functions over shim_fake_driver.cpp, which it reaches as
// the real one does. Compiled once per major.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#define API extern "C" __attribute__((visibility("default")))

namespace {

using GetProcAddress = int (*)(const char*, void**, int, uint64_t, int*);

struct Driver {
  int (*alloc)(uint64_t*, size_t) = nullptr;
  int (*free)(uint64_t) = nullptr;
  int (*alloc_async)(uint64_t*, size_t, void*) = nullptr;
  int (*free_async)(uint64_t, void*) = nullptr;
  int (*host_alloc)(void**, size_t, unsigned) = nullptr;
  int (*free_host)(void*) = nullptr;
  int (*reset)(int) = nullptr;
  int (*memory_info)(size_t*, size_t*) = nullptr;

  Driver() {
    void* const handle = dlopen("libcuda.so.1", RTLD_NOW);
    const auto get = reinterpret_cast<GetProcAddress>(dlsym(handle, "cuGetProcAddress_v2"));
    const auto ask = [get](const char* name, int version, auto& out) {
      int status = 0;
      get(name, reinterpret_cast<void**>(&out), version, 0, &status);
    };
    ask("cuMemAlloc", 3020, alloc);
    ask("cuMemFree", 3020, free);
    ask("cuMemAllocAsync", 11020, alloc_async);
    ask("cuMemFreeAsync", 11020, free_async);
    ask("cuMemHostAlloc", 2020, host_alloc);
    ask("cuMemFreeHost", 2000, free_host);
    ask("cuDevicePrimaryCtxReset", 11000, reset);
    ask("cuMemGetInfo", 3020, memory_info);
  }
};

const Driver& driver() {
  static const Driver instance;
  return instance;
}

thread_local int g_last_error = 0;
std::atomic<int> g_mallocs{0};
std::atomic<int> g_synchronizations{0};

int remember(int error) {
  if (error != 0) g_last_error = error;
  return error;
}

}  // namespace

API int cudaMalloc(void** out, size_t bytes) {
  ++g_mallocs;
  if (out == nullptr) return remember(1);
  if (bytes == 0) {
    *out = nullptr;
    return 0;
  }
  return remember(driver().alloc(reinterpret_cast<uint64_t*>(out), bytes));
}
API int cudaFree(void* address) {
  return remember(driver().free(reinterpret_cast<uint64_t>(address)));
}
API int cudaMallocAsync(void** out, size_t bytes, void* stream) {
  return remember(driver().alloc_async(reinterpret_cast<uint64_t*>(out), bytes, stream));
}
API int cudaFreeAsync(void* address, void* stream) {
  return remember(driver().free_async(reinterpret_cast<uint64_t>(address), stream));
}
API int cudaMallocHost(void** out, size_t bytes) {
  return remember(driver().host_alloc(out, bytes, 0));
}
API int cudaHostAlloc(void** out, size_t bytes, unsigned flags) {
  return remember(driver().host_alloc(out, bytes, flags));
}
API int cudaFreeHost(void* address) { return remember(driver().free_host(address)); }
API int cudaDeviceSynchronize() {
  ++g_synchronizations;
  return 0;
}
API int cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  return remember(driver().memory_info(free_bytes, total));
}
API int cudaDeviceReset() { return remember(driver().reset(0)); }
API int fake_runtime_synchronizations() { return g_synchronizations; }
API int cudaGetLastError() {
  const int error = g_last_error;
  g_last_error = 0;
  return error;
}
API int fake_runtime_major() { return MAJOR; }
API int fake_runtime_mallocs() { return g_mallocs; }
