// Compile-time: every row of shim/intercepts.def against the vendor's headers of one CUDA major.
// Driver rows: cudaTypedefs.h has a type for this name, version and flavour, and its parameters
// are passed in the same way. Runtime rows: the same against the declared function.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#undef cudaGetDeviceProperties  // CUDA 12 names the newer function by the older one's name

#include <type_traits>

#include "shim/cuda_abi.h"
#include "shim/hook_table.h"

// ABIs that are newer than these headers, as later ones declare them.
#if CUDA_VERSION < 12050
typedef CUresult (*PFN_cuCtxCreate_v12050)(CUcontext*, void*, unsigned, CUdevice);
#endif
#if CUDA_VERSION < 13010
typedef CUresult (*PFN_cuMulticastBindMem_v13010)(CUmemGenericAllocationHandle, CUdevice, size_t,
                                                  CUmemGenericAllocationHandle, size_t, size_t,
                                                  unsigned long long);
typedef CUresult (*PFN_cuMulticastBindAddr_v13010)(CUmemGenericAllocationHandle, CUdevice, size_t,
                                                   CUdeviceptr, size_t, unsigned long long);
#endif
#if CUDA_VERSION < 13040
typedef PFN_cuGraphAddNode_v12030 PFN_cuGraphAddNode_v13040;
#endif
#if CUDA_VERSION >= 13000
extern "C" cudaError_t cudaThreadExit();  // left the headers, not every library
extern "C" cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp*, int);
#else
extern "C" cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int);
#endif

namespace fragscope::shim {
namespace {

template <typename Theirs, typename Ours>
constexpr bool same_value() {
  return sizeof(Theirs) == sizeof(Ours) && alignof(Theirs) == alignof(Ours) &&
         std::is_class_v<Theirs> == std::is_class_v<Ours> &&
         std::is_pointer_v<Theirs> == std::is_pointer_v<Ours>;
}

template <typename Theirs, typename Ours>
struct SameAbi : std::false_type {};

template <typename TheirResult, typename... Theirs, typename OurResult, typename... Ours>
requires(sizeof...(Theirs) ==
         sizeof...(Ours)) struct SameAbi<TheirResult (*)(Theirs...), OurResult (*)(Ours...)>
    : std::bool_constant<sizeof(TheirResult) == sizeof(OurResult) &&
                         (same_value<Theirs, Ours>() && ...)> {
};

// The check can fail: a 32-bit size, a missing parameter, a struct for a pointer.
static_assert(!SameAbi<int (*)(unsigned*, unsigned), int (*)(DevicePtr*, size_t)>::value);
static_assert(!SameAbi<int (*)(void*), int (*)(void*, size_t)>::value);
static_assert(!SameAbi<int (*)(Extent), int (*)(Extent*)>::value);

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define FS_CHECK_runtime_plain(symbol, type, ptsz_type, params) \
  static_assert(SameAbi<decltype(&::symbol), int(*) params>::value, #symbol);
#define FS_CHECK_runtime_ptsz(symbol, type, ptsz_type, params)  // declared nowhere
#define FS_CHECK_driver_plain(symbol, type, ptsz_type, params) \
  static_assert(SameAbi<type, int(*) params>::value, #symbol);
#define FS_CHECK_driver_ptsz(symbol, type, ptsz_type, params) \
  static_assert(SameAbi<ptsz_type, int(*) params>::value, #symbol);

#define CUDA_HOOK(symbol, library, base, since, flavour, phase, params, args, observer)       \
  FS_CHECK_##library##_##flavour(symbol, PFN_##base##_v##since, PFN_##base##_v##since##_ptsz, \
                                 params)
#define RESOLVER_HOOK(symbol, library, base, since, params, args, request) \
  FS_RESOLVER_##library(symbol, PFN_##base##_v##since, params)
#define FS_RESOLVER_driver(symbol, type, params) \
  static_assert(SameAbi<type, int(*) params>::value, #symbol);
#define FS_RESOLVER_runtime(symbol, type, params)  // deprecated ones leave the headers
#include "shim/intercepts.def"

// Read in every release's struct without its header (caps.cpp).
static_assert(offsetof(cudaDeviceProp, totalGlobalMem) == 288);
static_assert(same_value<cudaPitchedPtr, PitchedPtr>() && same_value<cudaExtent, Extent>());
static_assert(offsetof(CUmemAllocationProp, location) ==
              offsetof(AllocationProperties, location_type));
static_assert(CU_MEM_LOCATION_TYPE_DEVICE == kLocationTypeDevice);
static_assert(same_value<CUipcMemHandle, IpcHandle>() &&
              same_value<cudaIpcMemHandle_t, IpcHandle>());
static_assert(sizeof(CUmemPoolPtrExportData) == sizeof(IpcHandle));
static_assert(sizeof(cudaChannelFormatDesc) == sizeof(ChannelDesc));
static_assert(sizeof(CUDA_ARRAY_DESCRIPTOR) == sizeof(ArrayDesc) &&
              offsetof(CUDA_ARRAY_DESCRIPTOR, Format) == offsetof(ArrayDesc, format));
static_assert(sizeof(CUDA_ARRAY3D_DESCRIPTOR) == sizeof(Array3dDesc) &&
              offsetof(CUDA_ARRAY3D_DESCRIPTOR, Flags) == offsetof(Array3dDesc, flags));
static_assert(sizeof(CUmemPoolProps) == sizeof(PoolProperties) &&
              sizeof(cudaMemPoolProps) == sizeof(PoolProperties) &&
              offsetof(CUmemPoolProps, location) == offsetof(PoolProperties, location_type) &&
              offsetof(CUmemPoolProps, maxSize) == offsetof(PoolProperties, max_bytes));
static_assert(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS) == sizeof(MemAllocNodeParams) &&
              offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize) ==
                  offsetof(MemAllocNodeParams, bytes) &&
              offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, dptr) == offsetof(MemAllocNodeParams, address));
static_assert(offsetof(CUgraphNodeParams, alloc) == offsetof(GraphNodeParams, alloc) &&
              offsetof(CUgraphNodeParams, free) == offsetof(GraphNodeParams, free));
static_assert(CU_GRAPH_NODE_TYPE_MEM_ALLOC == kNodeTypeAlloc &&
              CU_GRAPH_NODE_TYPE_MEM_FREE == kNodeTypeFree);
static_assert(offsetof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size) ==
                  offsetof(ExternalMemoryDesc, bytes) &&
              offsetof(cudaExternalMemoryHandleDesc, size) == offsetof(ExternalMemoryDesc, bytes));
static_assert(offsetof(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, size) ==
                  offsetof(ExternalBufferDesc, bytes) &&
              offsetof(cudaExternalMemoryBufferDesc, size) == offsetof(ExternalBufferDesc, bytes));
static_assert(sizeof(CUmemAccessDesc) == sizeof(AccessDesc) &&
              offsetof(CUmemAccessDesc, flags) == offsetof(AccessDesc, flags));
static_assert(offsetof(CUmulticastObjectProp, size) == offsetof(MulticastProperties, bytes));
static_assert(sizeof(CUarrayMapInfo) == sizeof(ArrayMapInfo) &&
              offsetof(CUarrayMapInfo, memHandle) == offsetof(ArrayMapInfo, handle));
static_assert(CUDA_ARRAY3D_SPARSE == kArraySparse &&
              CUDA_ARRAY3D_DEFERRED_MAPPING == kArrayDeferredMapping);
static_assert(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD == kFirstWidePoolAttribute);
static_assert(CU_STREAM_CAPTURE_STATUS_ACTIVE == kCaptureActive);
static_assert(CUDA_ERROR_OUT_OF_MEMORY == kErrorOutOfMemory);
static_assert(static_cast<int>(cudaErrorMemoryAllocation) == kErrorOutOfMemory);
static_assert(static_cast<int>(cudaErrorInvalidValue) == kErrorInvalidValue);
static_assert(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED == kErrorSharedObjectInitFailed);
static_assert(static_cast<int>(cudaErrorSharedObjectInitFailed) == kErrorSharedObjectInitFailed);

}  // namespace
}  // namespace fragscope::shim
