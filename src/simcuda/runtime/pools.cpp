// Memory pools: straight to the driver, whose enumerators the runtime shares.
#include "simcuda/runtime/runtime_internal.h"

using namespace fragscope::simcuda;

extern "C" {

cudaError_t CUDARTAPI cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return call(
      [&](const DriverCalls& calls) { return calls.cuDeviceGetDefaultMemPool(pool, device); });
}
cudaError_t CUDARTAPI cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return call([&](const DriverCalls& calls) { return calls.cuDeviceGetMemPool(pool, device); });
}
cudaError_t CUDARTAPI cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return call([&](const DriverCalls& calls) { return calls.cuDeviceSetMemPool(device, pool); });
}
cudaError_t CUDARTAPI cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return call([&](const DriverCalls& calls) {
    static_assert(sizeof(cudaMemPoolProps) == sizeof(CUmemPoolProps));
    return calls.cuMemPoolCreate(pool, reinterpret_cast<const CUmemPoolProps*>(properties));
  });
}
cudaError_t CUDARTAPI cudaMemPoolDestroy(cudaMemPool_t pool) {
  return call([&](const DriverCalls& calls) { return calls.cuMemPoolDestroy(pool); });
}
cudaError_t CUDARTAPI cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep_bytes) {
  return call([&](const DriverCalls& calls) { return calls.cuMemPoolTrimTo(pool, keep_bytes); });
}
cudaError_t CUDARTAPI cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                              void* value) {
  return call([&](const DriverCalls& calls) {
    return calls.cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
  });
}
cudaError_t CUDARTAPI cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                              void* value) {
  return call([&](const DriverCalls& calls) {
    return calls.cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
  });
}
cudaError_t CUDARTAPI cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* access,
                                           size_t count) {
  return call([&](const DriverCalls& calls) {
    return calls.cuMemPoolSetAccess(pool, reinterpret_cast<const CUmemAccessDesc*>(access), count);
  });
}
cudaError_t CUDARTAPI cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool,
                                           cudaMemLocation* location) {
  return call([&](const DriverCalls& calls) {
    return calls.cuMemPoolGetAccess(reinterpret_cast<CUmemAccess_flags*>(flags), pool,
                                    reinterpret_cast<CUmemLocation*>(location));
  });
}
cudaError_t CUDARTAPI cudaDeviceGetGraphMemAttribute(int device,
                                                     cudaGraphMemAttributeType attribute,
                                                     void* value) {
  return call([&](const DriverCalls& calls) {
    return calls.cuDeviceGetGraphMemAttribute(device, static_cast<CUgraphMem_attribute>(attribute),
                                              value);
  });
}
cudaError_t CUDARTAPI cudaDeviceSetGraphMemAttribute(int device,
                                                     cudaGraphMemAttributeType attribute,
                                                     void* value) {
  return call([&](const DriverCalls& calls) {
    return calls.cuDeviceSetGraphMemAttribute(device, static_cast<CUgraphMem_attribute>(attribute),
                                              value);
  });
}
cudaError_t CUDARTAPI cudaDeviceGraphMemTrim(int device) {
  return call([&](const DriverCalls& calls) { return calls.cuDeviceGraphMemTrim(device); });
}

}  // extern "C"
