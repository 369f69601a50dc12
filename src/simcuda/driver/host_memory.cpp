// Pinned host memory: really mapped, so that copies between host buffers are exact.
#include <sys/mman.h>

#include "simcuda/driver/driver_state.h"

using namespace fragscope::simcuda;

namespace {

// Portable, device map, I/O memory, read only.
constexpr unsigned kRegisterFlags = 15;

CUresult allocate_host(const char* call, void** out, size_t bytes, unsigned flags) {
  const CUresult result = with_context([&](DriverState& state, CUctx_st& context) {
    if (out == nullptr || bytes == 0 || flags > 7) return CUDA_ERROR_INVALID_VALUE;
    const CUresult refused = refuse_in_capture(state);
    if (refused != CUDA_SUCCESS) return refused;
    void* at = state.host_window.map(bytes);
    if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    state.host_blocks[reinterpret_cast<uint64_t>(at)] = {bytes, flags, 0, state.next_id++,
                                                         &context};
    *out = at;
    return CUDA_SUCCESS;
  });
  write_books(call, result == CUDA_SUCCESS ? reinterpret_cast<uint64_t>(*out) : 0, bytes, result);
  return result;
}

// Counts the registration in `number`.
CUresult register_host(void* address, size_t bytes, unsigned flags, uint64_t& number) {
  return with_context([&](DriverState& state, CUctx_st& context) {
    const auto from = reinterpret_cast<uint64_t>(address);
    if (address == nullptr || bytes == 0 || bytes > UINT64_MAX - from || flags > kRegisterFlags) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto next = state.host_blocks.lower_bound(from);
    const bool overlaps = block_around(state.host_blocks, from) != state.host_blocks.end() ||
                          (next != state.host_blocks.end() && next->first < from + bytes);
    if (overlaps) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    number = ++state.registrations;
    state.host_blocks[from] = {bytes, flags, number, state.next_id++, &context};
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemHostAlloc(void** out, size_t bytes, unsigned int flags) {
  return allocate_host("cuMemHostAlloc", out, bytes, flags);
}

CUresult CUDAAPI cuMemAllocHost_v2(void** out, size_t bytes) {
  return allocate_host("cuMemAllocHost_v2", out, bytes, 0);
}

CUresult CUDAAPI cuMemFreeHost(void* address) {
  const CUresult result = with_state([&](DriverState& state) {
    const auto block = state.host_blocks.find(reinterpret_cast<uint64_t>(address));
    if (block == state.host_blocks.end() || block->second.registration != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult refused = refuse_in_capture(state);
    if (refused != CUDA_SUCCESS) return refused;
    synchronize_device(state, *block->second.context->device);
    state.host_window.unmap(address, block->second.bytes);
    state.host_blocks.erase(block);
    return CUDA_SUCCESS;
  });
  write_books("cuMemFreeHost", reinterpret_cast<uint64_t>(address), 0, result);
  return result;
}

CUresult CUDAAPI cuMemHostRegister_v2(void* address, size_t bytes, unsigned int flags) {
  uint64_t number = 0;
  const CUresult result = register_host(address, bytes, flags, number);
  write_books("cuMemHostRegister_v2", {reinterpret_cast<uint64_t>(address), number}, bytes, result);
  return result;
}
CUresult CUDAAPI cuMemHostRegister(void* address, size_t bytes, unsigned int flags) {
  return cuMemHostRegister_v2(address, bytes, flags);
}

CUresult CUDAAPI cuMemHostUnregister(void* address) {
  uint64_t number = 0;
  const CUresult result = with_state([&](DriverState& state) {
    const auto block = state.host_blocks.find(reinterpret_cast<uint64_t>(address));
    if (block == state.host_blocks.end() || block->second.registration == 0) {
      return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    number = block->second.registration;
    state.host_blocks.erase(block);
    return CUDA_SUCCESS;
  });
  write_books("cuMemHostUnregister", {reinterpret_cast<uint64_t>(address), number}, 0, result);
  return result;
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* address, unsigned int) {
  return with_context([&](DriverState& state, CUctx_st&) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto from = reinterpret_cast<uint64_t>(address);
    if (block_around(state.host_blocks, from) == state.host_blocks.end())
      return CUDA_ERROR_INVALID_VALUE;
    *out = from;  // unified addressing
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int* flags, void* address) {
  return with_context([&](DriverState& state, CUctx_st&) {
    const auto block = block_around(state.host_blocks, reinterpret_cast<uint64_t>(address));
    if (flags == nullptr || block == state.host_blocks.end()) return CUDA_ERROR_INVALID_VALUE;
    *flags = block->second.flags;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
