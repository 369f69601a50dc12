// Device memory that is allocated as a whole: cuMemAlloc and its kin, managed memory.
#include <sys/mman.h>

#include <algorithm>

#include "base/bytes.h"
#include "simcuda/driver/driver_state.h"

using namespace fragscope;
using namespace fragscope::simcuda;

namespace {

CUresult allocate(const char* call, CUdeviceptr* out, size_t bytes) {
  const CUresult result = with_context([&](DriverState& state, CUctx_st& context) -> CUresult {
    if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const CUresult refused = refuse_in_capture(state);
    if (refused != CUDA_SUCCESS) return refused;
    const auto address = context.device->memory.allocate(bytes);
    if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
    context.device->overlay.erase(*address, bytes);
    state.allocation_ids[*address] = {state.next_id++, &context};
    *out = *address;
    return CUDA_SUCCESS;
  });
  write_books(call, result == CUDA_SUCCESS ? *out : 0, bytes, result);
  return result;
}

CUresult free_managed(DriverState& state, CUdeviceptr address) {
  const auto found = state.managed_blocks.find(address);
  if (found == state.managed_blocks.end()) return CUDA_ERROR_INVALID_VALUE;
  state.host_window.unmap(reinterpret_cast<void*>(address), found->second.bytes);
  state.managed_blocks.erase(found);
  return CUDA_SUCCESS;
}

CUresult free_address(DriverState& state, CUdeviceptr address) {
  Device* device = device_of_address(state, address);
  if (device == nullptr) return free_managed(state, address);
  CUresult result = CUDA_SUCCESS;
  if (pool_free(state, address, result) || free_graph_block(state, address, result)) return result;
  if (state.lent_ranges.erase(address) != 0) {
    close_range(state, address);
    return CUDA_SUCCESS;
  }
  const auto known = state.allocation_ids.find(address);
  if (known == state.allocation_ids.end()) return CUDA_ERROR_INVALID_VALUE;
  synchronize_device(state, *device);  // a free waits for the device, as the real one does
  state.allocation_ids.erase(known);
  const auto bytes = device->memory.release(address);
  device->overlay.erase(address, bytes.value_or(0));
  return CUDA_SUCCESS;
}

// The host or managed block that contains `address`.
template <typename Blocks>
bool find_block(const Blocks& blocks, uint64_t address, uint64_t& from, uint64_t& length) {
  const auto block = block_around(blocks, address);
  if (block == blocks.end()) return false;
  from = block->first;
  length = block->second.bytes;
  return true;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return allocate("cuMemAlloc_v2", address, bytes);
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width,
                                    size_t height, unsigned int element) {
  if (pitch == nullptr || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element != 4 && element != 8 && element != 16) return CUDA_ERROR_INVALID_VALUE;
  // A row that long, or so many of them, is more than any device has.
  const uint64_t row = round_up(std::min<uint64_t>(width, kLargestRequest), 512);
  const uint64_t bytes = height > UINT64_MAX / row ? UINT64_MAX : row * height;
  const CUresult result = allocate("cuMemAllocPitch_v2", address, bytes);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address) {
  if (address == 0) return CUDA_SUCCESS;
  // The address names its context: programs (numba's cuda.close) free without a current one.
  const CUresult result = with_state([&](DriverState& state) -> CUresult {
    const CUresult refused = refuse_in_capture(state);
    return refused != CUDA_SUCCESS ? refused : free_address(state, address);
  });
  write_books("cuMemFree_v2", address, 0, result);
  return result;
}

CUresult CUDAAPI cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  return with_context([&](DriverState& state, CUctx_st& context) {
    const uint64_t total = state.config.total_bytes;
    const uint64_t used = state.ledger->used(context.device->card);
    if (free_bytes != nullptr) *free_bytes = used < total ? total - used : 0;
    if (total_bytes != nullptr) *total_bytes = total;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  return with_state([&](DriverState& state) {
    Device* device = device_of_address(state, address);
    uint64_t from = 0, length = 0;
    if (device == nullptr) {
      if (!find_block(state.host_blocks, address, from, length) &&
          !find_block(state.managed_blocks, address, from, length)) {
        return CUDA_ERROR_NOT_FOUND;
      }
      if (base != nullptr) *base = from;
      if (bytes != nullptr) *bytes = length;
      return CUDA_SUCCESS;
    }
    auto block = state.pool_blocks.upper_bound(address);
    auto mapping = state.mappings.upper_bound(address);
    if (block != state.pool_blocks.begin() && (--block)->first <= address &&
        address - block->first < block->second->live[block->first].bytes) {
      from = block->first;
      length = block->second->live[from].bytes;
    } else if (const auto found = device->memory.find(address)) {
      from = found->address;
      length = found->bytes;
    } else if (mapping != state.mappings.begin() &&
               address - (--mapping)->first < mapping->second.bytes) {
      from = mapping->first;
      length = mapping->second.bytes;
    } else {
      return CUDA_ERROR_NOT_FOUND;
    }
    if (base != nullptr) *base = from;
    if (bytes != nullptr) *bytes = length;
    return CUDA_SUCCESS;
  });
}

// Managed memory is ordinary host memory, committed when touched; a real device would be charged
// when it touches a page, which no-op kernels never do.
CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned int flags) {
  const CUresult result = with_context([&](DriverState& state, CUctx_st& context) {
    if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult refused = refuse_in_capture(state);
    if (refused != CUDA_SUCCESS) return refused;
    void* at = state.host_window.map(bytes, MAP_NORESERVE);
    if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = reinterpret_cast<CUdeviceptr>(at);
    state.managed_blocks[*out] = {bytes, state.next_id++, &context};
    return CUDA_SUCCESS;
  });
  write_books("cuMemAllocManaged", result == CUDA_SUCCESS ? *out : 0, bytes, result);
  return result;
}

}  // extern "C"
