// Stream-ordered memory and virtual memory management on a simulated device of 1 GiB.
#define __CUDA_API_VERSION_INTERNAL  // symbols under their real names
#include <cuda.h>

#include <cstdint>

#include "sim_check.h"

namespace {

constexpr size_t kMiB = 1u << 20;

size_t free_bytes() {
  size_t free = 0, total = 0;
  OK(cudaMemGetInfo(&free, &total));
  return free;
}

uint64_t attribute(cudaMemPool_t pool, cudaMemPoolAttr which) {
  uint64_t value = 0;
  OK(cudaMemPoolGetAttribute(pool, which, &value));
  return value;
}

void the_default_pool_keeps_books() {
  cudaMemPool_t pool = nullptr;
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  uint64_t threshold = UINT64_MAX;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  void* first = nullptr;
  void* second = nullptr;
  OK(cudaMallocAsync(&first, 1000, nullptr));
  CHECK(attribute(pool, cudaMemPoolAttrUsedMemCurrent) == 1024);
  CHECK(attribute(pool, cudaMemPoolAttrReservedMemCurrent) == 32 * kMiB);
  OK(cudaMallocAsync(&second, 40 * kMiB, nullptr));
  CHECK(attribute(pool, cudaMemPoolAttrReservedMemCurrent) == 96 * kMiB);
  CHECK(free_bytes() == 1024 * kMiB - 96 * kMiB);
  OK(cudaFreeAsync(first, nullptr));
  void* again = nullptr;
  OK(cudaMallocAsync(&again, 900, nullptr));
  CHECK(static_cast<char*>(again) == static_cast<char*>(second) + 40 * kMiB);  // the tightest hole
  OK(cudaFreeAsync(again, nullptr));
  OK(cudaFree(second));  // either free works
  OK(cudaDeviceSynchronize());
  CHECK(attribute(pool, cudaMemPoolAttrUsedMemCurrent) == 0);
  CHECK(attribute(pool, cudaMemPoolAttrUsedMemHigh) == 40 * kMiB + 1024);
  CHECK(attribute(pool, cudaMemPoolAttrReservedMemCurrent) == 96 * kMiB);
  OK(cudaMemPoolTrimTo(pool, 32 * kMiB));
  CHECK(attribute(pool, cudaMemPoolAttrReservedMemCurrent) == 64 * kMiB);  // whole steps only
  threshold = 0;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  OK(cudaStreamSynchronize(nullptr));
  CHECK(attribute(pool, cudaMemPoolAttrReservedMemCurrent) == 0);
  CHECK(free_bytes() == 1024 * kMiB);
  CHECK_CODE(cudaFreeAsync(first, nullptr), cudaErrorInvalidValue);
  CHECK_CODE(cudaMallocAsync(&first, 2048 * kMiB, nullptr), cudaErrorMemoryAllocation);
  cudaGetLastError();
}

void own_pools_have_a_limit_and_an_end() {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.maxSize = 64 * kMiB;
  cudaMemPool_t pool = nullptr;
  OK(cudaMemPoolCreate(&pool, &properties));
  void* block = nullptr;
  OK(cudaMallocFromPoolAsync(&block, 60 * kMiB, pool, nullptr));
  void* more = nullptr;
  CHECK_CODE(cudaMallocFromPoolAsync(&more, 10 * kMiB, pool, nullptr), cudaErrorMemoryAllocation);
  cudaGetLastError();
  OK(cudaMemPoolDestroy(pool));
  CHECK(free_bytes() == 960 * kMiB);  // live blocks outlive their pool
  OK(cudaFreeAsync(block, nullptr));
  CHECK(free_bytes() == 1024 * kMiB);
}

template <typename Function>
Function* driver(const char* name, unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
#if CUDART_VERSION >= 13000
  OK(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &status));
#else
  (void)version;
  OK(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &status));
#endif
  CHECK(found != nullptr && status == cudaDriverEntryPointSuccess);
  return reinterpret_cast<Function*>(found);
}

void virtual_memory_is_charged_when_made() {
  const auto reserve = driver<decltype(cuMemAddressReserve)>("cuMemAddressReserve", 12000);
  const auto release_range = driver<decltype(cuMemAddressFree)>("cuMemAddressFree", 12000);
  const auto create = driver<decltype(cuMemCreate)>("cuMemCreate", 12000);
  const auto release = driver<decltype(cuMemRelease)>("cuMemRelease", 12000);
  const auto map = driver<decltype(cuMemMap)>("cuMemMap", 12000);
  const auto unmap = driver<decltype(cuMemUnmap)>("cuMemUnmap", 12000);
  const auto access = driver<decltype(cuMemSetAccess)>("cuMemSetAccess", 12000);
  CUdeviceptr range = 0;
  CHECK(reserve(&range, 1152 * kMiB, 0, 0, 0) == CUDA_SUCCESS);
  CHECK(free_bytes() == 1024 * kMiB);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0, second = 0;
  CHECK(create(&handle, 3 * kMiB, &properties, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(create(&handle, 2048 * kMiB, &properties, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(create(&handle, 20 * kMiB, &properties, 0) == CUDA_SUCCESS);
  CHECK(create(&second, 20 * kMiB, &properties, 0) == CUDA_SUCCESS);
  CHECK(free_bytes() == 984 * kMiB);
  CUmemAccessDesc writable{};
  writable.location = properties.location;
  writable.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(access(range, 20 * kMiB, &writable, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(range, 20 * kMiB, 0, handle, 0) == CUDA_SUCCESS);
  CHECK(map(range, 20 * kMiB, 0, second, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(range + 20 * kMiB, 20 * kMiB, 0, second, 0) == CUDA_SUCCESS);
  CHECK(access(range, 40 * kMiB, &writable, 1) == CUDA_SUCCESS);
  const int value = 11;
  int back = 0;
  void* across = reinterpret_cast<void*>(range + 20 * kMiB - 2);
  OK(cudaMemcpy(across, &value, 4, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(&back, across, 4, cudaMemcpyDeviceToHost));
  CHECK(back == 11);
  CHECK(release(handle) == CUDA_SUCCESS);
  CHECK(free_bytes() == 984 * kMiB);  // still mapped
  CHECK(unmap(range, 10 * kMiB) == CUDA_ERROR_INVALID_VALUE);
  CHECK(release_range(range, 1152 * kMiB) == CUDA_ERROR_INVALID_VALUE);
  CHECK(unmap(range, 40 * kMiB) == CUDA_SUCCESS);
  CHECK(free_bytes() == 1004 * kMiB);  // the second is unmapped, not released
  CHECK(release(second) == CUDA_SUCCESS);
  CHECK(release(second) == CUDA_ERROR_INVALID_VALUE);
  CHECK(free_bytes() == 1024 * kMiB);
  CHECK(release_range(range, 1152 * kMiB) == CUDA_SUCCESS);
}

}  // namespace

int main() {
  the_default_pool_keeps_books();
  own_pools_have_a_limit_and_an_end();
  virtual_memory_is_charged_when_made();
  return g_failures;
}
