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
using Array = void*;                // CUarray, CUmipmappedArray and the runtime's
using ExternalMemory = void*;       // CUexternalMemory
using Graph = void*;                // CUgraph
using GraphExec = void*;            // CUgraphExec
using GraphNode = void*;            // CUgraphNode

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

// 64 opaque bytes that name memory in another process: cudaIpcMemHandle_t, CUipcMemHandle,
// CUmemPoolPtrExportData.
struct IpcHandle {
  char bytes[64];
};

struct ChannelDesc {  // cudaChannelFormatDesc: bits of each channel
  int x, y, z, w;
  int kind;
};

struct ArrayDesc {  // CUDA_ARRAY_DESCRIPTOR_v2
  size_t width;
  size_t height;
  int format;
  unsigned channels;
};

struct Array3dDesc {  // CUDA_ARRAY3D_DESCRIPTOR_v2
  size_t width;
  size_t height;
  size_t depth;
  int format;
  unsigned channels;
  unsigned flags;
};

struct PoolProperties {  // CUmemPoolProps_v1, cudaMemPoolProps
  int type;
  int handle_types;
  int location_type;
  int location_id;
  void* security;
  size_t max_bytes;  // 0 before CUDA 12.3, where this is reserved
  unsigned char reserved[56];
};

struct MemAllocNodeParams {  // CUDA_MEM_ALLOC_NODE_PARAMS
  PoolProperties pool;
  const void* access;
  size_t access_count;
  size_t bytes;
  DevicePtr address;  // out
};

// Leading members of CUgraphNodeParams, for the two types of nodes that concern memory.
struct GraphNodeParams {
  int type;
  int reserved[3];
  union {
    MemAllocNodeParams alloc;
    DevicePtr free;
  };
};
inline constexpr int kNodeTypeAlloc = 10;
inline constexpr int kNodeTypeFree = 11;

// Leading members of CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_EXTERNAL_MEMORY_BUFFER_DESC and the
// runtime's.
struct ExternalMemoryDesc {
  int type;
  void* handle[2];
  unsigned long long bytes;
};
struct ExternalBufferDesc {
  unsigned long long offset;
  unsigned long long bytes;
};

struct AccessDesc {  // CUmemAccessDesc
  int location_type;
  int location_id;
  int flags;
};

// Leading members of CUmulticastObjectProp.
struct MulticastProperties {
  unsigned devices;
  size_t bytes;
};

// CUarrayMapInfo; `opaque` is a union that we do not look at.
struct ArrayMapInfo {
  int resource_type;
  Array array;
  int subresource_type;
  uint64_t opaque[4];
  int operation;
  int handle_type;
  AllocationHandle handle;
  unsigned long long offset;
  unsigned device_mask;
  unsigned flags;
  unsigned reserved[2];
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
inline constexpr unsigned kArraySparse = 0x40;           // CUDA_ARRAY3D_SPARSE, cudaArraySparse
inline constexpr unsigned kArrayDeferredMapping = 0x80;  // …_DEFERRED_MAPPING
inline constexpr int kFirstWidePoolAttribute = 4;        // from the release threshold on: 64 bits
inline constexpr int kCaptureActive = 1;                 // CU_STREAM_CAPTURE_STATUS_ACTIVE
inline constexpr uintptr_t kLegacyStream = 1;            // cudaStreamLegacy, CU_STREAM_LEGACY
inline constexpr uintptr_t kPerThreadStream = 2;  // cudaStreamPerThread, CU_STREAM_PER_THREAD

// The newest CUDA_VERSION whose ABIs intercepts.def was written against.
inline constexpr int kNewestKnownVersion = 13050;

}  // namespace fragscope::shim
