// Calls that CUDA itself refuses for want of memory: the real function with a size that no device
// has. One overload per shape of arguments of the functions that allocate.
//
// Errors: CUDA's own; whatever else is wrong with the call is told first, as ever.
#pragma once

#include <cstddef>

#include "shim/cuda_abi.h"
#include "shim/elf_lookup.h"
#include "shim/hook_table.h"

namespace fragscope::shim::refusals {

inline constexpr size_t kImpossibleBytes = size_t{1} << 50;  // a multiple of every granularity
inline constexpr size_t kWideRow = size_t{1} << 30;          // below what a pitch may be
inline constexpr size_t kImpossibleRows = kImpossibleBytes / kWideRow;

// cudaMalloc, cudaMallocHost, cuMemAlloc_v2, cuMemAllocHost_v2
template <typename Real, typename Out>
int refuse(HookId, Real real, Out* out, size_t) {
  return real(out, kImpossibleBytes);
}

// cudaMallocAsync, cuMemAllocAsync
template <typename Real, typename Out>
int refuse(HookId, Real real, Out* out, size_t, Stream stream) {
  return real(out, kImpossibleBytes, stream);
}

// cudaMallocFromPoolAsync, cuMemAllocFromPoolAsync
template <typename Real, typename Out>
int refuse(HookId, Real real, Out* out, size_t, MemPool pool, Stream stream) {
  return real(out, kImpossibleBytes, pool, stream);
}

// cudaHostAlloc, cuMemHostAlloc
template <typename Real>
int refuse(HookId, Real real, void** out, size_t, unsigned flags) {
  return real(out, kImpossibleBytes, flags);
}

// The pitch of the impossible rows is not the program's: it is not told.
// cudaMallocPitch
template <typename Real, typename Out>
int refuse(HookId, Real real, Out* out, size_t* pitch, size_t, size_t) {
  size_t unseen = 0;
  return real(out, pitch != nullptr ? &unseen : nullptr, kWideRow, kImpossibleRows);
}

// cuMemAllocPitch_v2
template <typename Real, typename Out>
int refuse(HookId, Real real, Out* out, size_t* pitch, size_t, size_t, unsigned element) {
  size_t unseen = 0;
  return real(out, pitch != nullptr ? &unseen : nullptr, kWideRow, kImpossibleRows, element);
}

// cudaMalloc3D
template <typename Real>
int refuse(HookId, Real real, PitchedPtr* out, Extent) {
  PitchedPtr unseen{};
  return real(out != nullptr ? &unseen : nullptr, Extent{kWideRow, kImpossibleRows, 1});
}

// cuMemCreate
template <typename Real>
int refuse(HookId, Real real, AllocationHandle* out, size_t, const void* properties,
           unsigned long long flags) {
  return real(out, kImpossibleBytes, properties, flags);
}

// Arrays and registrations have no size of their own that fails for want of memory: extents beyond
// a limit are invalid. The runtime's cudaMalloc of the same library fails instead; the driver keeps
// no last error.
inline int refuse_beside(HookId id, const void* real) {
  if (info(id).library != Library::runtime) return kErrorOutOfMemory;
  const auto malloc_of_library =
      reinterpret_cast<int (*)(void**, size_t)>(find_symbol(object_of(real), "cudaMalloc"));
  void* nowhere = nullptr;
  if (malloc_of_library == nullptr) return kErrorOutOfMemory;
  return malloc_of_library(&nowhere, kImpossibleBytes);
}

// cudaHostRegister, cuMemHostRegister
template <typename Real>
int refuse(HookId id, Real real, void*, size_t, unsigned) {
  return refuse_beside(id, reinterpret_cast<const void*>(real));
}
// cudaMallocArray, cudaMalloc3DArray, cudaMallocMipmappedArray
template <typename Real, typename... Rest>
int refuse(HookId id, Real real, Array*, const ChannelDesc*, Rest...) {
  return refuse_beside(id, reinterpret_cast<const void*>(real));
}
// cuArrayCreate_v2, cuArray3DCreate_v2, cuMipmappedArrayCreate
template <typename Real, typename... Rest>
int refuse(HookId id, Real real, Array*, const ArrayDesc*, Rest...) {
  return refuse_beside(id, reinterpret_cast<const void*>(real));
}
template <typename Real, typename... Rest>
int refuse(HookId id, Real real, Array*, const Array3dDesc*, Rest...) {
  return refuse_beside(id, reinterpret_cast<const void*>(real));
}

}  // namespace fragscope::shim::refusals
