// Types of CUDA's C interface as far as calling conventions see them. The shim is built without
// CUDA's headers, so one binary serves every major version; tests/unit/shim compares.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fragscope::shim {

using DevicePtr = uint64_t;         // CUdeviceptr_v2
using AllocationHandle = uint64_t;  // CUmemGenericAllocationHandle
using Stream = void*;               // cudaStream_t, CUstream
using MemPool = void*;              // cudaMemPool_t, CUmemoryPool

struct PitchedPtr {  // cudaPitchedPtr
  void* ptr;
  size_t pitch;
  size_t xsize;
  size_t ysize;
};

struct Extent {  // cudaExtent
  size_t width;
  size_t height;
  size_t depth;
};

// Leading members of CUmemAllocationProp (10.2 to 13): type, requestedHandleTypes, location.
struct AllocationProperties {
  int type;
  int handle_types;
  int location_type;
  int location_id;
};

// Numbers that runtime (cudaError_t) and driver (CUresult) share.
inline constexpr int kSuccess = 0;
inline constexpr int kErrorInvalidValue = 1;
inline constexpr int kErrorOutOfMemory = 2;
inline constexpr int kErrorSharedObjectInitFailed = 303;
inline constexpr int kLocationTypeDevice = 1;
inline constexpr uintptr_t kPerThreadStream = 2;  // cudaStreamPerThread, CU_STREAM_PER_THREAD

// The newest CUDA_VERSION whose ABIs intercepts.def was written against.
inline constexpr int kNewestKnownVersion = 13000;

}  // namespace fragscope::shim
