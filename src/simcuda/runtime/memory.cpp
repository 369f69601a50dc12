// Memory: allocation, copies, pools, attributes of pointers.
#include <cstring>

#include "simcuda/runtime/runtime_internal.h"

using namespace fragscope::simcuda;

namespace {

constexpr size_t kPitch = 512;

CUresult allocate(const DriverCalls& calls, void** out, size_t bytes) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  if (bytes == 0) return CUDA_SUCCESS;  // a null pointer and no error
  CUdeviceptr address = 0;
  const CUresult result = calls.cuMemAlloc_v2(&address, bytes);
  *out = reinterpret_cast<void*>(address);
  return result;
}

CUresult copy(const DriverCalls& calls, void* to, const void* from, size_t bytes,
              cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return calls.cuMemcpyHtoD_v2(as_device(to), from, bytes);
    case cudaMemcpyDeviceToHost:
      return calls.cuMemcpyDtoH_v2(to, as_device(from), bytes);
    case cudaMemcpyDeviceToDevice:
      return calls.cuMemcpyDtoD_v2(as_device(to), as_device(from), bytes);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return calls.cuMemcpy(as_device(to), as_device(from), bytes);
    default:
      return static_cast<CUresult>(cudaErrorInvalidMemcpyDirection);
  }
}

CUresult copy_async(const DriverCalls& calls, void* to, const void* from, size_t bytes,
                    cudaMemcpyKind kind, cudaStream_t stream) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return calls.cuMemcpyHtoDAsync_v2(as_device(to), from, bytes, stream);
    case cudaMemcpyDeviceToHost:
      return calls.cuMemcpyDtoHAsync_v2(to, as_device(from), bytes, stream);
    case cudaMemcpyDeviceToDevice:
      return calls.cuMemcpyDtoDAsync_v2(as_device(to), as_device(from), bytes, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return calls.cuMemcpyAsync(as_device(to), as_device(from), bytes, stream);
    default:
      return static_cast<CUresult>(cudaErrorInvalidMemcpyDirection);
  }
}

CUDA_MEMCPY2D box(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                  size_t height) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = as_device(from);
  copy.dstDevice = as_device(to);
  copy.srcPitch = from_pitch;
  copy.dstPitch = to_pitch;
  copy.WidthInBytes = width;
  copy.Height = height;
  return copy;
}

// What the runtime itself finds wrong with a copy of rows.
CUresult refuse_box(size_t to_pitch, size_t from_pitch, size_t width, cudaMemcpyKind kind) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
    return static_cast<CUresult>(cudaErrorInvalidMemcpyDirection);
  }
  const bool narrow = to_pitch < width || from_pitch < width;
  return narrow ? static_cast<CUresult>(cudaErrorInvalidPitchValue) : CUDA_SUCCESS;
}

CUresult copy_3d(const DriverCalls& calls, const cudaMemcpy3DParms* about, cudaStream_t stream,
                 bool asynchronous) {
  if (about == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (about->srcArray != nullptr || about->dstArray != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = as_device(about->srcPtr.ptr);
  copy.srcPitch = about->srcPtr.pitch;
  copy.srcHeight = about->srcPtr.ysize;
  copy.srcXInBytes = about->srcPos.x;
  copy.srcY = about->srcPos.y;
  copy.srcZ = about->srcPos.z;
  copy.dstDevice = as_device(about->dstPtr.ptr);
  copy.dstPitch = about->dstPtr.pitch;
  copy.dstHeight = about->dstPtr.ysize;
  copy.dstXInBytes = about->dstPos.x;
  copy.dstY = about->dstPos.y;
  copy.dstZ = about->dstPos.z;
  copy.WidthInBytes = about->extent.width;
  copy.Height = about->extent.height;
  copy.Depth = about->extent.depth;
  return asynchronous ? calls.cuMemcpy3DAsync_v2(&copy, stream) : calls.cuMemcpy3D_v2(&copy);
}

template <typename Copy>
cudaError_t copy_variable(const void* symbol, size_t bytes, size_t offset, Copy run,
                          const char* function = __builtin_FUNCTION()) {
  return call_bound(
      [&](const DriverCalls& calls) {
        CUdeviceptr address = 0;
        size_t size = 0;
        const CUresult found = find_variable(calls, symbol, &address, &size);
        if (found != CUDA_SUCCESS) return found;
        if (offset > size || bytes > size - offset) return CUDA_ERROR_INVALID_VALUE;
        return run(calls, reinterpret_cast<void*>(address + offset));
      },
      function);
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaMalloc(void** out, size_t bytes) {
  return call_bound([&](const DriverCalls& calls) { return allocate(calls, out, bytes); });
}

cudaError_t CUDARTAPI cudaFree(void* address) {
  return call_bound([&](const DriverCalls& calls) {  // cudaFree(0) is how programs make a context
    return address == nullptr ? CUDA_SUCCESS : calls.cuMemFree_v2(as_device(address));
  });
}

cudaError_t CUDARTAPI cudaMallocPitch(void** out, size_t* pitch, size_t width, size_t height) {
  return call_bound([&](const DriverCalls& calls) {
    if (out == nullptr || pitch == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (width == 0 || height == 0) {
      *out = nullptr;
      *pitch = width > SIZE_MAX - kPitch ? 0 : (width + kPitch - 1) / kPitch * kPitch;
      return CUDA_SUCCESS;
    }
    CUdeviceptr address = 0;
    const CUresult result = calls.cuMemAllocPitch_v2(&address, pitch, width, height, 4);
    *out = reinterpret_cast<void*>(address);
    return result;
  });
}

cudaError_t CUDARTAPI cudaMalloc3D(cudaPitchedPtr* out, cudaExtent extent) {
  return call_bound([&](const DriverCalls& calls) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    cudaPitchedPtr made{nullptr, 0, extent.width, extent.height};
    if (extent.width != 0 && extent.height != 0 && extent.depth != 0) {
      const size_t rows =
          extent.depth > SIZE_MAX / extent.height ? SIZE_MAX : extent.height * extent.depth;
      CUdeviceptr address = 0;
      const CUresult result =
          calls.cuMemAllocPitch_v2(&address, &made.pitch, extent.width, rows, 4);
      if (result != CUDA_SUCCESS) return result;
      made.ptr = reinterpret_cast<void*>(address);
    }
    *out = made;
    return CUDA_SUCCESS;
  });
}

cudaError_t CUDARTAPI cudaMallocHost(void** out, size_t bytes) {
  return cudaHostAlloc(out, bytes, cudaHostAllocDefault);
}

cudaError_t CUDARTAPI cudaHostAlloc(void** out, size_t bytes, unsigned int flags) {
  return call_bound([&](const DriverCalls& calls) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = nullptr;
    return bytes == 0 ? CUDA_SUCCESS : calls.cuMemHostAlloc(out, bytes, flags);
  });
}

cudaError_t CUDARTAPI cudaFreeHost(void* address) {
  return call_bound([&](const DriverCalls& calls) {
    return address == nullptr ? CUDA_SUCCESS : calls.cuMemFreeHost(address);
  });
}

cudaError_t CUDARTAPI cudaHostRegister(void* address, size_t bytes, unsigned int flags) {
  return call_bound(
      [&](const DriverCalls& calls) { return calls.cuMemHostRegister_v2(address, bytes, flags); });
}
cudaError_t CUDARTAPI cudaHostUnregister(void* address) {
  return call_bound([&](const DriverCalls& calls) { return calls.cuMemHostUnregister(address); });
}
cudaError_t CUDARTAPI cudaHostGetDevicePointer(void** out, void* address, unsigned int flags) {
  return call_bound([&](const DriverCalls& calls) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr device = 0;
    const CUresult result = calls.cuMemHostGetDevicePointer_v2(&device, address, flags);
    *out = reinterpret_cast<void*>(device);
    return result;
  });
}
cudaError_t CUDARTAPI cudaHostGetFlags(unsigned int* flags, void* address) {
  return call_bound(
      [&](const DriverCalls& calls) { return calls.cuMemHostGetFlags(flags, address); });
}

cudaError_t CUDARTAPI cudaMallocManaged(void** out, size_t bytes, unsigned int flags) {
  return call_bound([&](const DriverCalls& calls) {
    if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr address = 0;
    const CUresult result = calls.cuMemAllocManaged(&address, bytes, flags);
    *out = reinterpret_cast<void*>(address);
    return result;
  });
}

cudaError_t CUDARTAPI cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return call_bound(
      [&](const DriverCalls& calls) { return calls.cuMemGetInfo_v2(free_bytes, total_bytes); });
}

cudaError_t CUDARTAPI cudaMallocAsync(void** out, size_t bytes, cudaStream_t stream) {
  return call_bound([&](const DriverCalls& calls) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return calls.cuMemAllocAsync(reinterpret_cast<CUdeviceptr*>(out), bytes, stream);
  });
}
cudaError_t CUDARTAPI cudaMallocFromPoolAsync(void** out, size_t bytes, cudaMemPool_t pool,
                                              cudaStream_t stream) {
  return call_bound([&](const DriverCalls& calls) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return calls.cuMemAllocFromPoolAsync(reinterpret_cast<CUdeviceptr*>(out), bytes, pool, stream);
  });
}
cudaError_t CUDARTAPI cudaFreeAsync(void* address, cudaStream_t stream) {
  return call_bound(
      [&](const DriverCalls& calls) { return calls.cuMemFreeAsync(as_device(address), stream); });
}

cudaError_t CUDARTAPI cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call_bound([&](const DriverCalls& calls) { return copy(calls, to, from, bytes, kind); });
}
cudaError_t CUDARTAPI cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  return call_bound(
      [&](const DriverCalls& calls) { return copy_async(calls, to, from, bytes, kind, stream); });
}
cudaError_t CUDARTAPI cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                   size_t width, size_t height, cudaMemcpyKind kind) {
  return call_bound([&](const DriverCalls& calls) {
    const CUresult refused = refuse_box(to_pitch, from_pitch, width, kind);
    if (refused != CUDA_SUCCESS) return refused;
    const CUDA_MEMCPY2D copy = box(to, to_pitch, from, from_pitch, width, height);
    return calls.cuMemcpy2DUnaligned_v2(&copy);
  });
}
cudaError_t CUDARTAPI cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                                        size_t from_pitch, size_t width, size_t height,
                                        cudaMemcpyKind kind, cudaStream_t stream) {
  return call_bound([&](const DriverCalls& calls) {
    const CUresult refused = refuse_box(to_pitch, from_pitch, width, kind);
    if (refused != CUDA_SUCCESS) return refused;
    const CUDA_MEMCPY2D copy = box(to, to_pitch, from, from_pitch, width, height);
    return calls.cuMemcpy2DAsync_v2(&copy, stream);
  });
}
cudaError_t CUDARTAPI cudaMemcpy3D(const cudaMemcpy3DParms* about) {
  return call_bound(
      [&](const DriverCalls& calls) { return copy_3d(calls, about, nullptr, false); });
}
cudaError_t CUDARTAPI cudaMemcpy3DAsync(const cudaMemcpy3DParms* about, cudaStream_t stream) {
  return call_bound([&](const DriverCalls& calls) { return copy_3d(calls, about, stream, true); });
}
cudaError_t CUDARTAPI cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuMemcpyPeer(as_device(to), nullptr, as_device(from), nullptr, bytes);
  });
}
cudaError_t CUDARTAPI cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                          cudaStream_t stream) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuMemcpyPeerAsync(as_device(to), nullptr, as_device(from), nullptr, bytes, stream);
  });
}

cudaError_t CUDARTAPI cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes,
                                         size_t offset, cudaMemcpyKind kind) {
  return copy_variable(symbol, bytes, offset, [&](const DriverCalls& calls, void* at) {
    return copy(calls, at, from, bytes, kind);
  });
}
cudaError_t CUDARTAPI cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes,
                                              size_t offset, cudaMemcpyKind kind,
                                              cudaStream_t stream) {
  return copy_variable(symbol, bytes, offset, [&](const DriverCalls& calls, void* at) {
    return copy_async(calls, at, from, bytes, kind, stream);
  });
}
cudaError_t CUDARTAPI cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes,
                                           size_t offset, cudaMemcpyKind kind) {
  return copy_variable(symbol, bytes, offset, [&](const DriverCalls& calls, void* at) {
    return copy(calls, to, at, bytes, kind);
  });
}
cudaError_t CUDARTAPI cudaGetSymbolAddress(void** out, const void* symbol) {
  return call_bound([&](const DriverCalls& calls) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    size_t bytes = 0;
    return find_variable(calls, symbol, reinterpret_cast<CUdeviceptr*>(out), &bytes);
  });
}
cudaError_t CUDARTAPI cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  return call_bound([&](const DriverCalls& calls) {
    CUdeviceptr address = 0;
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return find_variable(calls, symbol, &address, bytes);
  });
}

cudaError_t CUDARTAPI cudaMemset(void* address, int value, size_t bytes) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuMemsetD8_v2(as_device(address), static_cast<unsigned char>(value), bytes);
  });
}
cudaError_t CUDARTAPI cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuMemsetD8Async(as_device(address), static_cast<unsigned char>(value), bytes,
                                 stream);
  });
}
cudaError_t CUDARTAPI cudaMemset2D(void* address, size_t pitch, int value, size_t width,
                                   size_t height) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuMemsetD2D8_v2(as_device(address), pitch, static_cast<unsigned char>(value),
                                 width, height);
  });
}
cudaError_t CUDARTAPI cudaMemset2DAsync(void* address, size_t pitch, int value, size_t width,
                                        size_t height, cudaStream_t stream) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuMemsetD2D8Async(as_device(address), pitch, static_cast<unsigned char>(value),
                                   width, height, stream);
  });
}

cudaError_t CUDARTAPI cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  return call_bound([&](const DriverCalls& calls) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    unsigned type = 0, managed = 0;
    int device = 0;
    CUdeviceptr address = 0;
    CUpointer_attribute wanted[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    void* values[] = {&type, &managed, &device, &address};
    const CUresult result = calls.cuPointerGetAttributes(4, wanted, values, as_device(pointer));
    if (result != CUDA_SUCCESS) return result;
    std::memset(out, 0, sizeof *out);
    out->type = managed != 0                   ? cudaMemoryTypeManaged
                : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                                               : cudaMemoryTypeUnregistered;
    const bool host = out->type != cudaMemoryTypeDevice;
    out->device = device;
    out->devicePointer = reinterpret_cast<void*>(address);
    out->hostPointer = host && device != -2 ? const_cast<void*>(pointer) : nullptr;
    if (out->type == cudaMemoryTypeUnregistered) out->hostPointer = const_cast<void*>(pointer);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
