// Arrays, memory of other processes and APIs, memory nodes of graphs: straight to the driver.
#include <algorithm>

#include "simcuda/runtime/runtime_internal.h"

using namespace fragscope::simcuda;

namespace {

// cudaChannelFormatDesc -> texel of the driver; false: no such texel.
bool to_texel(const cudaChannelFormatDesc* desc, CUDA_ARRAY3D_DESCRIPTOR& about) {
  if (desc == nullptr) return false;
  const int bits[] = {desc->x, desc->y, desc->z, desc->w};
  about.NumChannels =
      static_cast<unsigned>(std::count_if(bits, bits + 4, [](int n) { return n != 0; }));
  const int bytes = desc->x / 8;
  if (bytes != 1 && bytes != 2 && bytes != 4) return false;
  switch (desc->f) {
    case cudaChannelFormatKindUnsigned:
      about.Format = bytes == 1   ? CU_AD_FORMAT_UNSIGNED_INT8
                     : bytes == 2 ? CU_AD_FORMAT_UNSIGNED_INT16
                                  : CU_AD_FORMAT_UNSIGNED_INT32;
      return true;
    case cudaChannelFormatKindSigned:
      about.Format = bytes == 1   ? CU_AD_FORMAT_SIGNED_INT8
                     : bytes == 2 ? CU_AD_FORMAT_SIGNED_INT16
                                  : CU_AD_FORMAT_SIGNED_INT32;
      return true;
    case cudaChannelFormatKindFloat:
      about.Format = bytes == 2 ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_FLOAT;
      return bytes != 1;
    default:
      return false;
  }
}

CUresult describe(const cudaChannelFormatDesc* desc, const cudaExtent& extent, unsigned flags,
                  CUDA_ARRAY3D_DESCRIPTOR& about) {
  if (!to_texel(desc, about)) return static_cast<CUresult>(cudaErrorInvalidChannelDescriptor);
  about.Width = extent.width;
  about.Height = extent.height;
  about.Depth = extent.depth;
  about.Flags = flags;
  return CUDA_SUCCESS;
}

CUarray* as_arrays(cudaArray_t* array) { return reinterpret_cast<CUarray*>(array); }
CUarray as_array(cudaArray_t array) { return reinterpret_cast<CUarray>(array); }
CUmipmappedArray as_mipmap(cudaMipmappedArray_t array) {
  return reinterpret_cast<CUmipmappedArray>(array);
}

}  // namespace

extern "C" {

// The one function of the runtime that answers with a structure.
cudaChannelFormatDesc CUDARTAPI cudaCreateChannelDesc(int x, int y, int z, int w,
                                                      cudaChannelFormatKind kind) {
  return {x, y, z, w, kind};
}

cudaError_t CUDARTAPI cudaMallocArray(cudaArray_t* out, const cudaChannelFormatDesc* desc,
                                      size_t width, size_t height, unsigned int flags) {
  return call_bound([&](const DriverCalls& calls) {
    CUDA_ARRAY3D_DESCRIPTOR about{};
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult described = describe(desc, {width, height, 0}, flags, about);
    if (described != CUDA_SUCCESS) return described;
    if (flags != 0) return calls.cuArray3DCreate_v2(as_arrays(out), &about);
    const CUDA_ARRAY_DESCRIPTOR flat{about.Width, about.Height, about.Format, about.NumChannels};
    return calls.cuArrayCreate_v2(as_arrays(out), &flat);
  });
}

cudaError_t CUDARTAPI cudaMalloc3DArray(cudaArray_t* out, const cudaChannelFormatDesc* desc,
                                        cudaExtent extent, unsigned int flags) {
  return call_bound([&](const DriverCalls& calls) {
    CUDA_ARRAY3D_DESCRIPTOR about{};
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult described = describe(desc, extent, flags, about);
    return described != CUDA_SUCCESS ? described : calls.cuArray3DCreate_v2(as_arrays(out), &about);
  });
}

cudaError_t CUDARTAPI cudaMallocMipmappedArray(cudaMipmappedArray_t* out,
                                               const cudaChannelFormatDesc* desc, cudaExtent extent,
                                               unsigned int levels, unsigned int flags) {
  return call_bound([&](const DriverCalls& calls) {
    CUDA_ARRAY3D_DESCRIPTOR about{};
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult described = describe(desc, extent, flags, about);
    if (described != CUDA_SUCCESS) return described;
    return calls.cuMipmappedArrayCreate(reinterpret_cast<CUmipmappedArray*>(out), &about, levels);
  });
}

cudaError_t CUDARTAPI cudaGetMipmappedArrayLevel(cudaArray_t* out, cudaMipmappedArray_const_t array,
                                                 unsigned int level) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuMipmappedArrayGetLevel(
        as_arrays(out), as_mipmap(const_cast<cudaMipmappedArray_t>(array)), level);
  });
}

cudaError_t CUDARTAPI cudaFreeArray(cudaArray_t array) {
  return call_bound([&](const DriverCalls& calls) {
    return array == nullptr ? CUDA_SUCCESS : calls.cuArrayDestroy(as_array(array));
  });
}
cudaError_t CUDARTAPI cudaFreeMipmappedArray(cudaMipmappedArray_t array) {
  return call_bound([&](const DriverCalls& calls) {
    return array == nullptr ? CUDA_SUCCESS : calls.cuMipmappedArrayDestroy(as_mipmap(array));
  });
}

cudaError_t CUDARTAPI cudaIpcGetMemHandle(cudaIpcMemHandle_t* out, void* address) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuIpcGetMemHandle(reinterpret_cast<CUipcMemHandle*>(out), as_device(address));
  });
}
cudaError_t CUDARTAPI cudaIpcOpenMemHandle(void** out, cudaIpcMemHandle_t handle,
                                           unsigned int flags) {
  return call_bound([&](const DriverCalls& calls) {
    static_assert(sizeof(CUipcMemHandle) == sizeof handle);
    CUipcMemHandle same{};
    std::copy(handle.reserved, handle.reserved + sizeof handle.reserved, same.reserved);
    return calls.cuIpcOpenMemHandle_v2(reinterpret_cast<CUdeviceptr*>(out), same, flags);
  });
}
cudaError_t CUDARTAPI cudaIpcCloseMemHandle(void* address) {
  return call_bound(
      [&](const DriverCalls& calls) { return calls.cuIpcCloseMemHandle(as_device(address)); });
}

cudaError_t CUDARTAPI cudaIpcGetEventHandle(cudaIpcEventHandle_t* out, cudaEvent_t event) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuIpcGetEventHandle(reinterpret_cast<CUipcEventHandle*>(out), event);
  });
}
cudaError_t CUDARTAPI cudaIpcOpenEventHandle(cudaEvent_t* out, cudaIpcEventHandle_t handle) {
  return call_bound([&](const DriverCalls& calls) {
    static_assert(sizeof(CUipcEventHandle) == sizeof handle);
    CUipcEventHandle same{};
    std::copy(handle.reserved, handle.reserved + sizeof handle.reserved, same.reserved);
    return calls.cuIpcOpenEventHandle(out, same);
  });
}

cudaError_t CUDARTAPI cudaImportExternalMemory(cudaExternalMemory_t* out,
                                               const cudaExternalMemoryHandleDesc* desc) {
  return call_bound([&](const DriverCalls& calls) {
    if (desc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC about{};
    about.type = static_cast<CUexternalMemoryHandleType>(desc->type);
    about.handle.fd = desc->handle.fd;
    about.size = desc->size;
    about.flags = desc->flags;
    return calls.cuImportExternalMemory(reinterpret_cast<CUexternalMemory*>(out), &about);
  });
}
cudaError_t CUDARTAPI cudaExternalMemoryGetMappedBuffer(void** out, cudaExternalMemory_t memory,
                                                        const cudaExternalMemoryBufferDesc* desc) {
  return call_bound([&](const DriverCalls& calls) {
    if (desc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC about{};
    about.offset = desc->offset;
    about.size = desc->size;
    about.flags = desc->flags;
    return calls.cuExternalMemoryGetMappedBuffer(
        reinterpret_cast<CUdeviceptr*>(out), reinterpret_cast<CUexternalMemory>(memory), &about);
  });
}
cudaError_t CUDARTAPI cudaDestroyExternalMemory(cudaExternalMemory_t memory) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuDestroyExternalMemory(reinterpret_cast<CUexternalMemory>(memory));
  });
}

cudaError_t CUDARTAPI cudaMemPoolExportToShareableHandle(void* out, cudaMemPool_t pool,
                                                         cudaMemAllocationHandleType type,
                                                         unsigned int flags) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuMemPoolExportToShareableHandle(
        out, pool, static_cast<CUmemAllocationHandleType>(type), flags);
  });
}
cudaError_t CUDARTAPI cudaMemPoolImportFromShareableHandle(cudaMemPool_t* out, void* shared,
                                                           cudaMemAllocationHandleType type,
                                                           unsigned int flags) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuMemPoolImportFromShareableHandle(
        out, shared, static_cast<CUmemAllocationHandleType>(type), flags);
  });
}
cudaError_t CUDARTAPI cudaMemPoolExportPointer(cudaMemPoolPtrExportData* out, void* address) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuMemPoolExportPointer(reinterpret_cast<CUmemPoolPtrExportData*>(out),
                                        as_device(address));
  });
}
cudaError_t CUDARTAPI cudaMemPoolImportPointer(void** out, cudaMemPool_t pool,
                                               cudaMemPoolPtrExportData* data) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuMemPoolImportPointer(reinterpret_cast<CUdeviceptr*>(out), pool,
                                        reinterpret_cast<CUmemPoolPtrExportData*>(data));
  });
}

cudaError_t CUDARTAPI cudaGraphAddMemAllocNode(cudaGraphNode_t* out, cudaGraph_t graph,
                                               const cudaGraphNode_t* dependencies, size_t count,
                                               cudaMemAllocNodeParams* about) {
  return call_bound([&](const DriverCalls& calls) {
    static_assert(sizeof *about == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS));
    return calls.cuGraphAddMemAllocNode(out, graph, dependencies, count,
                                        reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(about));
  });
}
cudaError_t CUDARTAPI cudaGraphAddMemFreeNode(cudaGraphNode_t* out, cudaGraph_t graph,
                                              const cudaGraphNode_t* dependencies, size_t count,
                                              void* address) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuGraphAddMemFreeNode(out, graph, dependencies, count, as_device(address));
  });
}

}  // extern "C"
