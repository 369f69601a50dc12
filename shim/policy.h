// Enforcement for programs that call cudaMalloc and cudaFree (cuMemAlloc, cuMemFree) directly:
// served by PyTorch's caching allocator (src/model) over real segments, with the settings of
// FRAGSCOPE_ALLOC_CONF. Only on request: FRAGSCOPE_ENFORCE=shim. Not an observer: it changes
// addresses and moments of the program's memory calls, takes a lock and makes CUDA calls.
//
// For programs that use one stream. A served free first waits for the device, as cudaFree itself
// does, so a block is never handed out again before the work on it is done.
// An allocation that fails has asked real CUDA last: the error code and the last-error state are
// CUDA's own. Addresses that the policy did not hand out go to real CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/cuda_abi.h"
#include "shim/hook_table.h"

namespace fragscope::shim::policy {

// runtime and driver functions of the same purpose have equal ABIs (cudaMalloc, cuMemAlloc_v2).
using RealMalloc = int (*)(DevicePtr* out, size_t bytes);
using RealFree = int (*)(DevicePtr address);

// FRAGSCOPE_ENFORCE=shim and settings that can be read.
bool enabled() noexcept;

// For an outermost call. True: `result` is the answer; false: the call is real CUDA's.
bool allocate(HookId id, RealMalloc real, DevicePtr* out, size_t bytes, int& result) noexcept;
bool release(HookId id, RealFree real, DevicePtr address, int& result) noexcept;

// The contexts' memory is gone (device reset): so are all segments.
void forget_everything() noexcept;

}  // namespace fragscope::shim::policy
