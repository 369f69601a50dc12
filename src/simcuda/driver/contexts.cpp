// Contexts that a program makes itself, and what their end and the primary one's end take along.
#include "simcuda/driver/driver_state.h"

using namespace fragscope::simcuda;

namespace fragscope::simcuda {

namespace {

// Allocations end with their context, without a free call.
template <typename IsOwner>
void end_allocations(DriverState& state, IsOwner is_owner) {
  for (auto at = state.allocation_ids.begin(); at != state.allocation_ids.end();) {
    const auto [address, allocation] = *at;
    if (!is_owner(allocation.context)) {
      ++at;
      continue;
    }
    if (Device* device = device_of_address(state, address)) device->memory.release(address);
    at = state.allocation_ids.erase(at);
  }
  const auto end_arrays = [&](auto& arrays) {
    for (auto at = arrays.begin(); at != arrays.end();) {
      if (!is_owner(at->second->context)) {
        ++at;
        continue;
      }
      at->second->context->device->memory.release(at->second->address);
      at = arrays.erase(at);
    }
  };
  end_arrays(state.arrays);
  end_arrays(state.mipmaps);
  std::erase_if(state.host_blocks, [&](const auto& entry) {
    const HostBlock& block = entry.second;
    if (!is_owner(block.context)) return false;
    if (block.registration == 0) {
      state.host_window.unmap(reinterpret_cast<void*>(entry.first), block.bytes);
    }
    return true;
  });
  std::erase_if(state.managed_blocks, [&](const auto& entry) {
    if (!is_owner(entry.second.context)) return false;
    state.host_window.unmap(reinterpret_cast<void*>(entry.first), entry.second.bytes);
    return true;
  });
}

// Everything of a device that dies with its last context.
void reset_device(DriverState& state, Device& device) {
  synchronize_device(state, device);
  for (auto block = state.pool_blocks.begin(); block != state.pool_blocks.end();) {
    block = block->second->device == &device ? state.pool_blocks.erase(block) : std::next(block);
  }
  CUmemPoolHandle_st& pool = device.default_pool;
  for (const auto& [address, bytes] : pool.chunks) device.memory.release(address);
  pool.live.clear();
  pool.free_blocks.clear();
  pool.chunks.clear();
  pool.reserved = pool.used = 0;
  forget_graph_memory(state, device);
  end_allocations(state, [&](CUcontext owner) { return owner->device == &device; });
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
  bool ended = false;
  const CUresult result = with_state([&](DriverState& state) {
    Device* device = device_at(state, ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (device->primary_references == 0) return CUDA_ERROR_INVALID_CONTEXT;
    ended = --device->primary_references == 0;
    if (ended) reset_device(state, *device);
    return CUDA_SUCCESS;
  });
  if (ended || result != CUDA_SUCCESS) write_books("cuDevicePrimaryCtxRelease", 0, 0, result);
  return result;
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
  const CUresult result = with_state([&](DriverState& state) {
    const auto found = state.contexts.find(context);
    if (found == state.contexts.end()) return CUDA_ERROR_INVALID_CONTEXT;
    Device& device = *context->device;
    if (current_context() == context) pop_context();
    end_allocations(state, [&](CUcontext owner) { return owner == context; });
    context->ended = true;
    state.ended_contexts.push_back(std::move(found->second));
    state.contexts.erase(found);
    bool in_use = device.primary_references > 0;
    for (const auto& [handle, other] : state.contexts) in_use |= other->device == &device;
    if (!in_use) reset_device(state, device);
    return CUDA_SUCCESS;
  });
  write_books("cuCtxDestroy", reinterpret_cast<uint64_t>(context), 0, result);
  return result;
}
CUresult CUDAAPI cuCtxDestroy(CUcontext context) { return cuCtxDestroy_v2(context); }
CUresult CUDAAPI cuCtxDetach(CUcontext context) { return cuCtxDestroy_v2(context); }

}  // extern "C"
