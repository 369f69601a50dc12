// The simulated runtime holds no device state: it keeps, per thread, the last error and the chosen
// device, and reaches the driver only as the vendor's runtime does: dlopen of libcuda.so.1, one
// dlsym of cuGetProcAddress_v2, then requests by name, version and flags (driver_calls.def).
#pragma once

#define __CUDART_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include "simcuda/activity.h"
#include "simcuda/driver/cuda_internal.h"

namespace fragscope::simcuda {

struct DriverCalls {
#define DRIVER_CALL(name, version, flags, symbol) decltype(&::symbol) symbol;
#include "simcuda/runtime/driver_calls.def"
#undef DRIVER_CALL
};

// The driver, loaded and initialised on first use. Null: `error` says why (no libcuda: insufficient
// driver; no device; a forked child: initialization error).
const DriverCalls* driver(cudaError_t& error) noexcept;
// Loaded, but not initialised: what version and look-up queries need.
const DriverCalls* loaded_driver() noexcept;

// Remembers an error for cudaGetLastError, passes the code on.
cudaError_t finish(cudaError_t error) noexcept;
cudaError_t take_last_error(bool clear) noexcept;
int chosen_device() noexcept;
void choose_device(int device) noexcept;

// Driver and runtime number their errors alike.
inline cudaError_t as_runtime(CUresult result) { return static_cast<cudaError_t>(result); }

// Makes the chosen device's primary context current unless the thread has a context.
cudaError_t bind_context(const DriverCalls& calls) noexcept;
cudaError_t bind_device(const DriverCalls& calls, int device) noexcept;
void forget_contexts() noexcept;  // after cudaDeviceReset

// Where profilers listen; null before the driver is loaded.
const ActivityTap* activity_tap() noexcept;

// body(calls) -> CUresult, with the driver initialised. `function` is the exported one.
template <typename Body>
cudaError_t call(Body body, const char* function = __builtin_FUNCTION()) noexcept {
  cudaError_t error = cudaSuccess;
  const DriverCalls* calls = driver(error);
  ApiCall traced(activity_tap(), ApiDomain::kRuntime, function);
  return finish(traced.ends_with(calls == nullptr ? error : as_runtime(body(*calls))));
}

// The same with a current context.
template <typename Body>
cudaError_t call_bound(Body body, const char* function = __builtin_FUNCTION()) noexcept {
  return call(
      [&](const DriverCalls& calls) {
        const cudaError_t bound = bind_context(calls);
        return bound != cudaSuccess ? static_cast<CUresult>(bound) : body(calls);
      },
      function);
}

// Host stub, cudaKernel_t or CUfunction -> kernel. Null: not known.
CUkernel find_kernel(const DriverCalls& calls, const void* function);
// Address and registered size of a __device__ or __constant__ variable.
CUresult find_variable(const DriverCalls& calls, const void* symbol, CUdeviceptr* address,
                       size_t* bytes);

cudaError_t unsupported_runtime_call(const char* name);

inline CUdeviceptr as_device(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace fragscope::simcuda
