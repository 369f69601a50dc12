#include <dlfcn.h>

#include <atomic>
#include <mutex>

#include "model/device_memory.h"
#include "simcuda/runtime/runtime_internal.h"

namespace fragscope::simcuda {

namespace {

DriverCalls g_calls;
std::atomic<const ActivityTap*> g_tap{nullptr};
std::atomic<bool> g_loaded{false};
std::atomic<bool> g_initialised{false};
std::mutex g_lock;
std::atomic<CUcontext> g_primary[model::kMaxDevices];
thread_local cudaError_t t_last_error = cudaSuccess;
thread_local int t_device = 0;

bool load() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return false;
  using Resolver = decltype(&::cuGetProcAddress_v2);
  const auto resolve = reinterpret_cast<Resolver>(::dlsym(library, "cuGetProcAddress_v2"));
  if (resolve == nullptr) return false;
  CUdriverProcAddressQueryResult status{};
  void* function = nullptr;
  resolve("", &function, CUDART_VERSION, 0, &status);  // the vendor's runtime probes like this
#define DRIVER_CALL(name, version, flags, symbol)                                       \
  function = nullptr;                                                                   \
  if (resolve(#name, &function, version, flags, &status) != CUDA_SUCCESS) return false; \
  g_calls.symbol = reinterpret_cast<decltype(g_calls.symbol)>(function);
#include "simcuda/runtime/driver_calls.def"
#undef DRIVER_CALL
  // Ours alone; any other driver knows no such name.
  function = nullptr;
  if (resolve("fragscope_sim_activity_tap", &function, CUDART_VERSION, 0, &status) ==
      CUDA_SUCCESS) {
    g_tap.store(static_cast<const ActivityTap*>(function), std::memory_order_release);
  }
  return true;
}

}  // namespace

const DriverCalls* loaded_driver() noexcept {
  if (g_loaded.load(std::memory_order_acquire)) return &g_calls;
  const std::lock_guard<std::mutex> guard(g_lock);
  if (!g_loaded.load() && load()) g_loaded.store(true, std::memory_order_release);
  return g_loaded.load() ? &g_calls : nullptr;
}

const DriverCalls* driver(cudaError_t& error) noexcept {
  if (g_initialised.load(std::memory_order_acquire)) return &g_calls;
  const DriverCalls* calls = loaded_driver();
  if (calls == nullptr) {
    error = cudaErrorInsufficientDriver;
    return nullptr;
  }
  error = as_runtime(calls->cuInit(0));
  if (error != cudaSuccess) return nullptr;
  g_initialised.store(true, std::memory_order_release);
  return calls;
}

const ActivityTap* activity_tap() noexcept { return g_tap.load(std::memory_order_acquire); }

cudaError_t finish(cudaError_t error) noexcept {
  if (error != cudaSuccess) t_last_error = error;
  return error;
}

cudaError_t take_last_error(bool clear) noexcept {
  const cudaError_t error = t_last_error;
  if (clear) t_last_error = cudaSuccess;
  return error;
}

int chosen_device() noexcept { return t_device; }
void choose_device(int device) noexcept { t_device = device; }

cudaError_t bind_device(const DriverCalls& calls, int device) noexcept {
  if (device < 0 || device >= model::kMaxDevices) return cudaErrorInvalidDevice;
  CUcontext context = g_primary[device].load(std::memory_order_acquire);
  if (context == nullptr) {
    const std::lock_guard<std::mutex> guard(g_lock);
    context = g_primary[device].load();
    if (context == nullptr) {
      const CUresult retained = calls.cuDevicePrimaryCtxRetain(&context, device);
      if (retained != CUDA_SUCCESS) return as_runtime(retained);
      g_primary[device].store(context, std::memory_order_release);
    }
  }
  return as_runtime(calls.cuCtxSetCurrent(context));
}

cudaError_t bind_context(const DriverCalls& calls) noexcept {
  CUcontext context = nullptr;
  const CUresult asked = calls.cuCtxGetCurrent(&context);
  if (asked != CUDA_SUCCESS) return as_runtime(asked);
  const bool stale = context != nullptr && g_primary[t_device].load() == nullptr;
  return context != nullptr && !stale ? cudaSuccess : bind_device(calls, t_device);
}

void forget_contexts() noexcept {
  for (auto& context : g_primary) context.store(nullptr);
}

}  // namespace fragscope::simcuda
