// Devices, versions, errors and look-ups.
#include <cstring>

#include "simcuda/export_stub.h"
#include "simcuda/runtime/runtime_internal.h"

using namespace fragscope::simcuda;

namespace fragscope::simcuda {

namespace {

struct ErrorName {
  cudaError_t code;
  const char* name;
  const char* text;
};
constexpr ErrorName kErrors[] = {
#define ERROR_NAME(name, text) {name, #name, text},
#include "simcuda/runtime/runtime_errors.def"
#undef ERROR_NAME
};

const ErrorName* find_error(cudaError_t error) {
  for (const ErrorName& row : kErrors) {
    if (row.code == error) return &row;
  }
  return nullptr;
}

CUresult fill_properties(const DriverCalls& calls, cudaDeviceProp& out, int device) {
  std::memset(&out, 0, sizeof out);
  CUresult result = calls.cuDeviceGetName(out.name, sizeof out.name, device);
  if (result != CUDA_SUCCESS) return result;
  result = calls.cuDeviceTotalMem_v2(&out.totalGlobalMem, device);
  if (result != CUDA_SUCCESS) return result;
  calls.cuDeviceGetUuid_v2(reinterpret_cast<CUuuid*>(&out.uuid), device);
#define PROPERTY(field, attribute)                                                              \
  {                                                                                             \
    int value = 0;                                                                              \
    result =                                                                                    \
        calls.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), device); \
    if (result != CUDA_SUCCESS) return result;                                                  \
    out.field = static_cast<std::remove_reference_t<decltype(out.field)>>(value);               \
  }
#include "simcuda/runtime/device_properties.def"
#undef PROPERTY
  return CUDA_SUCCESS;
}

cudaError_t get_properties(cudaDeviceProp* out, int device,
                           const char* function = __builtin_FUNCTION()) {
  return call(
      [&](const DriverCalls& calls) {
        return out == nullptr ? CUDA_ERROR_INVALID_VALUE : fill_properties(calls, *out, device);
      },
      function);
}

cudaError_t entry_point(const char* name, void** function, int version, unsigned long long flags,
                        cudaDriverEntryPointQueryResult* status,
                        const char* caller = __builtin_FUNCTION()) {
  return call(
      [&](const DriverCalls& calls) {
        if (name == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
        CUdriverProcAddressQueryResult found{};
        const CUresult result = calls.cuGetProcAddress_v2(name, function, version, flags, &found);
        if (status != nullptr) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
        // An unknown name is an answer, not an error: null and a status.
        return result == CUDA_ERROR_NOT_FOUND ? CUDA_SUCCESS : result;
      },
      caller);
}

}  // namespace

// Counted where the driver counts: a request for a name that cannot exist reaches its books.
cudaError_t unsupported_runtime_call(const char* name) {
  using Note = void (*)(const char*);
  cudaError_t error = cudaSuccess;
  const DriverCalls* calls = driver(error);
  void* note = nullptr;
  if (calls != nullptr && calls->cuGetProcAddress_v2("fragscope_sim_note_unsupported", &note, 13000,
                                                     0, nullptr) == CUDA_SUCCESS) {
    reinterpret_cast<Note>(note)(name);
  }
  return finish(cudaErrorNotSupported);
}

}  // namespace fragscope::simcuda

#define STUB(symbol) FS_STUB(symbol, ::fragscope::simcuda::unsupported_runtime_call)
#include "simcuda/runtime/runtime_stubs.def"
#undef STUB

extern "C" {

cudaError_t CUDARTAPI cudaGetLastError(void) { return take_last_error(true); }
cudaError_t CUDARTAPI cudaPeekAtLastError(void) { return take_last_error(false); }
const char* CUDARTAPI cudaGetErrorName(cudaError_t error) {
  const ErrorName* found = find_error(error);
  return found == nullptr ? "unrecognized error code" : found->name;
}
const char* CUDARTAPI cudaGetErrorString(cudaError_t error) {
  const ErrorName* found = find_error(error);
  return found == nullptr ? "unrecognized error code" : found->text;
}

cudaError_t CUDARTAPI cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return finish(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaDriverGetVersion(int* version) {
  if (version == nullptr) return finish(cudaErrorInvalidValue);
  const DriverCalls* calls = loaded_driver();
  *version = 0;  // documented: no driver
  return calls == nullptr ? cudaSuccess : finish(as_runtime(calls->cuDriverGetVersion(version)));
}

cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  if (count == nullptr) return finish(cudaErrorInvalidValue);
  *count = 0;
  return call([&](const DriverCalls& calls) { return calls.cuDeviceGetCount(count); });
}

cudaError_t CUDARTAPI cudaGetDevice(int* device) {
  return call([&](const DriverCalls& calls) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (calls.cuCtxGetDevice(device) != CUDA_SUCCESS) *device = chosen_device();
    return CUDA_SUCCESS;
  });
}

cudaError_t CUDARTAPI cudaSetDevice(int device) {
  return call([&](const DriverCalls& calls) {
    int count = 0;
    const CUresult counted = calls.cuDeviceGetCount(&count);
    if (counted != CUDA_SUCCESS) return counted;
    if (device < 0 || device >= count) return CUDA_ERROR_INVALID_DEVICE;
    choose_device(device);
    return static_cast<CUresult>(bind_device(calls, device));
  });
}
cudaError_t CUDARTAPI cudaInitDevice(int device, unsigned int, unsigned int) {
  const int before = chosen_device();
  const cudaError_t error = cudaSetDevice(device);
  choose_device(before);
  return error;
}
cudaError_t CUDARTAPI cudaSetValidDevices(int*, int) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaChooseDevice(int* device, const cudaDeviceProp*) {
  if (device == nullptr) return finish(cudaErrorInvalidValue);
  *device = 0;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaDeviceReset(void) {
  return call([&](const DriverCalls& calls) {
    const CUresult result = calls.cuDevicePrimaryCtxReset_v2(chosen_device());
    forget_contexts();
    calls.cuCtxSetCurrent(nullptr);
    return result;
  });
}
cudaError_t CUDARTAPI cudaDeviceSynchronize(void) {
  return call_bound([](const DriverCalls& calls) { return calls.cuCtxSynchronize(); });
}

cudaError_t CUDARTAPI cudaGetDeviceFlags(unsigned int* flags) {
  return call_bound([&](const DriverCalls& calls) { return calls.cuCtxGetFlags(flags); });
}
cudaError_t CUDARTAPI cudaSetDeviceFlags(unsigned int flags) {
  return call([&](const DriverCalls& calls) {
    return calls.cuDevicePrimaryCtxSetFlags_v2(chosen_device(), flags);
  });
}

#if CUDART_VERSION >= 13000
cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  return get_properties(out, device);
}
#else
cudaError_t CUDARTAPI cudaGetDeviceProperties_v2(cudaDeviceProp* out, int device) {
  return get_properties(out, device);
}
#endif

cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call([&](const DriverCalls& calls) {
    return calls.cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), device);
  });
}
cudaError_t CUDARTAPI cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return call(
      [&](const DriverCalls& calls) { return calls.cuDeviceGetPCIBusId(text, length, device); });
}
cudaError_t CUDARTAPI cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return call([&](const DriverCalls& calls) { return calls.cuDeviceGetByPCIBusId(device, text); });
}
cudaError_t CUDARTAPI cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuCtxGetLimit(value, static_cast<CUlimit>(limit));
  });
}
cudaError_t CUDARTAPI cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuCtxSetLimit(static_cast<CUlimit>(limit), value);
  });
}
cudaError_t CUDARTAPI cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  if (config == nullptr) return finish(cudaErrorInvalidValue);
  *config = cudaFuncCachePreferNone;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call_bound(
      [&](const DriverCalls& calls) { return calls.cuCtxGetStreamPriorityRange(least, greatest); });
}

cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call(
      [&](const DriverCalls& calls) { return calls.cuDeviceCanAccessPeer(can, device, peer); });
}
cudaError_t CUDARTAPI cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int device,
                                                int peer) {
  return call([&](const DriverCalls& calls) {
    return calls.cuDeviceGetP2PAttribute(value, static_cast<CUdevice_P2PAttribute>(attribute),
                                         device, peer);
  });
}
cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  return call_bound([&](const DriverCalls& calls) {
    CUcontext context = nullptr;
    const CUresult retained = calls.cuDevicePrimaryCtxRetain(&context, peer);
    return retained != CUDA_SUCCESS ? retained : calls.cuCtxEnablePeerAccess(context, flags);
  });
}
cudaError_t CUDARTAPI cudaDeviceDisablePeerAccess(int peer) {
  return call_bound([&](const DriverCalls& calls) {
    CUcontext context = nullptr;
    const CUresult retained = calls.cuDevicePrimaryCtxRetain(&context, peer);
    return retained != CUDA_SUCCESS ? retained : calls.cuCtxDisablePeerAccess(context);
  });
}

cudaError_t CUDARTAPI cudaGetDriverEntryPoint(const char* name, void** function,
                                              unsigned long long flags,
                                              cudaDriverEntryPointQueryResult* status) {
  return entry_point(name, function, CUDART_VERSION, flags, status);
}
#if CUDART_VERSION < 12050  // new in 12.5; wheels of later 12.x import it
__attribute__((visibility("default"))) cudaError_t CUDARTAPI
cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned int version,
                                 unsigned long long flags, cudaDriverEntryPointQueryResult* status);
#endif
cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(const char* name, void** function,
                                                       unsigned int version,
                                                       unsigned long long flags,
                                                       cudaDriverEntryPointQueryResult* status) {
  return entry_point(name, function, static_cast<int>(version), flags, status);
}

__attribute__((visibility("default"))) cudaError_t CUDARTAPI cudaProfilerStart(void) {
  return cudaSuccess;
}
__attribute__((visibility("default"))) cudaError_t CUDARTAPI cudaProfilerStop(void) {
  return cudaSuccess;
}

}  // extern "C"
