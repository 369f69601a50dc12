// Contexts that a program makes itself, and what their end and the primary one's end take along.
#include "simcuda/driver/driver_state.h"

using namespace fragscope::simcuda;

namespace fragscope::simcuda {

namespace {

// Everything of a device that dies with its last context: allocations end without a free call.
void reset_device(DriverState& state, Device& device) {
  synchronize_device(state, device);
  for (auto block = state.pool_blocks.begin(); block != state.pool_blocks.end();) {
    block = block->second->device == &device ? state.pool_blocks.erase(block) : std::next(block);
  }
  for (CUmemPoolHandle_st* pool : {&device.default_pool, &device.graph_pool}) {
    for (const auto& [address, bytes] : pool->chunks) device.memory.release(address);
    pool->live.clear();
    pool->free_blocks.clear();
    pool->chunks.clear();
    pool->reserved = pool->used = 0;
  }
  std::vector<uint64_t> addresses;
  for (const auto& [address, id] : state.allocation_ids) {
    if (device_of_address(state, address) == &device) addresses.push_back(address);
  }
  for (const uint64_t address : addresses) {
    device.memory.release(address);
    state.allocation_ids.erase(address);
  }
  device.overlay.expire();
  if (device.context_charged) {
    device.book.refund(state.config.context_bytes);
    device.context_charged = false;
  }
}

CUresult create_context(CUcontext* out, unsigned flags, CUdevice ordinal) {
  return with_state([&](DriverState& state) -> CUresult {
    Device* device = device_at(state, ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult charged = charge_context(state, *device);
    if (charged != CUDA_SUCCESS) return charged;
    auto context = std::make_unique<CUctx_st>();
    context->device = device;
    context->flags = flags;
    context->id = state.next_id++;
    context->legacy.context = context.get();
    context->legacy.id = state.next_id++;
    *out = context.get();
    push_context(context.get());
    state.contexts.emplace(*out, std::move(context));
    return CUDA_SUCCESS;
  });
}

}  // namespace

}  // namespace fragscope::simcuda

extern "C" {

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  return with_state([&](DriverState& state) {
    Device* device = device_at(state, ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (device->primary_references == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--device->primary_references == 0) reset_device(state, *device);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice ordinal) {
  return cuDevicePrimaryCtxRelease_v2(ordinal);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  const CUresult result = with_state([&](DriverState& state) {
    Device* device = device_at(state, ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    reset_device(state, *device);
    device->primary_references = 0;
    return CUDA_SUCCESS;
  });
  write_books("cuDevicePrimaryCtxReset", static_cast<uint64_t>(ordinal), 0, result);
  return result;
}
CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice ordinal) {
  return cuDevicePrimaryCtxReset_v2(ordinal);
}

CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
  return create_context(context, flags, device);
}
CUresult CUDAAPI cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam*, int, unsigned int flags,
                                CUdevice device) {
  return create_context(context, flags, device);
}
#if CUDA_VERSION >= 12050
CUresult CUDAAPI cuCtxCreate_v4(CUcontext* context, CUctxCreateParams*, unsigned int flags,
                                CUdevice device) {
  return create_context(context, flags, device);
}
#endif

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context) {
  return with_state([&](DriverState& state) {
    const auto found = state.contexts.find(context);
    if (found == state.contexts.end()) return CUDA_ERROR_INVALID_CONTEXT;
    Device& device = *context->device;
    if (current_context() == context) pop_context();
    state.contexts.erase(found);
    bool in_use = device.primary_references > 0;
    for (const auto& [handle, other] : state.contexts) in_use |= other->device == &device;
    if (!in_use) reset_device(state, device);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
