// Initialisation, devices and contexts.
#include <cstdio>
#include <cstring>

#include "simcuda/driver/driver_state.h"

using namespace fragscope::simcuda;

namespace fragscope::simcuda {

namespace {

struct Shape {  // what follows from the compute capability (CUDA programming guide, table of
                // "technical specifications per compute capability")
  int threads_per_sm, blocks_per_sm, shared_per_sm, shared_optin;
};
Shape shape_of(const SimConfig& config) {
  switch (config.cc_major * 10 + config.cc_minor) {
    case 70:
      return {2048, 32, 98304, 98304};
    case 75:
      return {1024, 16, 65536, 65536};
    case 80:
      return {2048, 32, 167936, 166912};
    case 86:
      return {1536, 16, 102400, 101376};
    case 87:
      return {1536, 16, 167936, 166912};
    case 89:
      return {1536, 24, 102400, 101376};
    case 120:
      return {1536, 24, 102400, 101376};
    default:
      return {2048, 32, 233472, 232448};  // 9.0, 10.x
  }
}

}  // namespace

int device_attribute(const SimConfig& config, CUdevice_attribute attribute, int card, bool& known) {
  const Shape shape = shape_of(config);
  known = true;
  switch (static_cast<int>(attribute)) {
#define ATTRIBUTE(number, value) \
  case number:                   \
    return value;
#include "simcuda/driver/device_attributes.def"
#undef ATTRIBUTE
    default:
      known = false;
      return 0;
  }
}

}  // namespace fragscope::simcuda

extern "C" {

CUresult CUDAAPI cuInit(unsigned int flags) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : initialise_driver();
}

CUresult CUDAAPI cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 13020;
  return CUDA_SUCCESS;
}

__attribute__((visibility("default"))) int fragscope_sim_version(void) { return 1; }

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  return with_state([&](DriverState& state) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<int>(state.devices.size());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  return with_state([&](DriverState& state) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device_at(state, ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetName(char* name, int length, CUdevice device) {
  return with_state([&](DriverState& state) {
    if (device_at(state, device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (name == nullptr || length < 1) return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(name, static_cast<size_t>(length), "%s", state.config.name.c_str());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return with_state([&](DriverState& state) {
    if (device_at(state, device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(uuid->bytes, "FragScope-sim-\0", 16);
    uuid->bytes[15] = static_cast<char>('0' + device_at(state, device)->card);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return cuDeviceGetUuid_v2(uuid, device);
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return with_state([&](DriverState& state) {
    if (device_at(state, device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *bytes = state.config.total_bytes;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  bool known = true;
  const CUresult result = with_state([&](DriverState& state) {
    if (device_at(state, device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (value == nullptr || attribute < 1) return CUDA_ERROR_INVALID_VALUE;
    *value = device_attribute(state.config, attribute, device_at(state, device)->card, known);
    return CUDA_SUCCESS;
  });
  if (known) return result;
  char name[48];
  std::snprintf(name, sizeof name, "cuDeviceGetAttribute(%d)", static_cast<int>(attribute));
  unsupported_call(name);
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return with_state([&](DriverState& state) {
    if (device_at(state, device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (text == nullptr || length < 13) return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(text, static_cast<size_t>(length), "0000:%02X:00.0",
                  kFirstPciBus + device_at(state, device)->card);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  return with_state([&](DriverState& state) {
    unsigned domain = 0, bus = 0, slot = 0;
    if (device == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) < 3) return CUDA_ERROR_INVALID_VALUE;
    for (const auto& known : state.devices) {
      if (known->card != static_cast<int>(bus) - kFirstPciBus) continue;
      *device = known->ordinal;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return with_state([&](DriverState& state) {
    if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device_at(state, device) == nullptr || device_at(state, peer) == nullptr) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    *can = device != peer;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute,
                                         CUdevice device, CUdevice peer) {
  return with_state([&](DriverState& state) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device_at(state, device) == nullptr || device_at(state, peer) == nullptr) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ? 0 : device != peer;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int) {
  return with_context([&](DriverState&, CUctx_st& context) {
    return peer == nullptr || peer->device == context.device ? CUDA_ERROR_INVALID_DEVICE
                                                             : CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer) {
  return with_context([&](DriverState&, CUctx_st&) {
    return peer == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice ordinal) {
  return with_state([&](DriverState& state) -> CUresult {
    Device* device = device_at(state, ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult charged = charge_context(state, *device);
    if (charged != CUDA_SUCCESS) return charged;
    ++device->primary_references;
    *context = &device->primary;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int* flags, int* active) {
  return with_state([&](DriverState& state) {
    Device* device = device_at(state, ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (flags != nullptr) *flags = device->primary_flags;
    if (active != nullptr) *active = device->primary_references > 0;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags) {
  return with_state([&](DriverState& state) {
    Device* device = device_at(state, ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    device->primary_flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
  return with_state([&](DriverState&) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *context = context_on_top();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  return with_state([&](DriverState&) {
    if (context != nullptr && context->ended) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    set_current_context(context);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext context) {
  return with_state([&](DriverState&) {
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->ended) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return push_context(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext* context) {
  return with_state([&](DriverState&) {
    const CUcontext top = pop_context();
    if (context != nullptr) *context = top;
    return top == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
  return with_context([&](DriverState&, CUctx_st& context) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = context.device->ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetFlags(unsigned int* flags) {
  return with_context([&](DriverState&, CUctx_st& context) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = context.primary ? context.device->primary_flags : context.flags;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetId(CUcontext handle, unsigned long long* id) {
  return with_state([&](DriverState&) {
    const CUcontext context = handle != nullptr ? handle : current_context();
    if (context == nullptr || id == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->ended) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *id = context->id;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext, unsigned int* version) {
  return with_state([&](DriverState&) {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetLimit(size_t* value, CUlimit limit) {
  return with_context([&](DriverState&, CUctx_st& context) {
    if (value == nullptr || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
    const auto set = context.limits.find(limit);
    constexpr size_t kDefaults[] = {1024, 1048576, 8388608, 2, 2048, 64, 0};
    *value = set != context.limits.end() ? set->second : limit < 7 ? kDefaults[limit] : 0;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value) {
  return with_context([&](DriverState&, CUctx_st& context) {
    if (limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
    context.limits[limit] = value;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache* config) {
  return with_context([&](DriverState&, CUctx_st&) {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *config = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache) {
  return with_context([](DriverState&, CUctx_st&) { return CUDA_SUCCESS; });
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return with_context([&](DriverState&, CUctx_st&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSynchronize(void) {
  await_context();
  return with_context([](DriverState& state, CUctx_st& context) {
    const CUresult refused = refuse_in_capture(state);
    if (refused != CUDA_SUCCESS) return refused;
    synchronize_device(state, *context.device);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGetExportTable(const void** table, const CUuuid*) {
  if (table != nullptr) *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;  // undocumented interfaces are not imitated
}

}  // extern "C"
