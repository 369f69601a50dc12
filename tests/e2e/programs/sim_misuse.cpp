// What no correct program asks for, over a table of calls: sizes that no device has, nothing, null
// outputs, pointers that name nothing, ranges that end elsewhere. Each row says what CUDA answers;
// after all of them no byte is held and outputs that were not due are as they were.
#include <cuda.h>

#include <cstdint>
#include <functional>

#include "sim_check.h"

namespace {

constexpr size_t kMiB = 1u << 20;
constexpr size_t kHuge[] = {SIZE_MAX, SIZE_MAX - 511, SIZE_MAX / 2 + 1, size_t{1} << 62,
                            size_t{1} << 50};
char g_filled;
void* const kUntouched = &g_filled;

// Every function that makes memory of `bytes` and writes one pointer.
using Allocate = std::function<cudaError_t(void** out, size_t bytes)>;
struct Allocator {
  const char* name;
  Allocate call;
  int of_nothing;  // the answer to 0 bytes
};

CUdeviceptr* as_address(void** out) { return reinterpret_cast<CUdeviceptr*>(out); }
cudaError_t code(CUresult result) { return static_cast<cudaError_t>(result); }

cudaMemPool_t default_pool() {
  cudaMemPool_t pool = nullptr;
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  return pool;
}

cudaError_t pitched(void** out, size_t width, size_t height) {
  size_t pitch = 77;
  const cudaError_t result = cudaMallocPitch(out, &pitch, width, height);
  CHECK(result == cudaSuccess || pitch == 77);
  return result;
}

cudaError_t cubic(void** out, size_t width, size_t height, size_t depth) {
  if (out == nullptr) return cudaMalloc3D(nullptr, {width, height, depth});
  cudaPitchedPtr made{kUntouched, 77, 78, 79};
  const cudaError_t result = cudaMalloc3D(&made, {width, height, depth});
  CHECK(result == cudaSuccess || (made.ptr == kUntouched && made.pitch == 77 && made.xsize == 78));
  if (result == cudaSuccess) *out = made.ptr;
  return result;
}

cudaError_t of_driver_pitched(void** out, size_t width, size_t height) {
  size_t pitch = 77;
  const CUresult result = cuMemAllocPitch(as_address(out), &pitch, width, height, 4);
  CHECK(result == CUDA_SUCCESS || pitch == 77);
  return code(result);
}

cudaError_t of_graph(void** out, size_t bytes) {
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t node = nullptr;
  cudaMemAllocNodeParams about{};
  about.poolProps.allocType = cudaMemAllocationTypePinned;
  about.poolProps.location.type = cudaMemLocationTypeDevice;
  about.bytesize = bytes;
  OK(cudaGraphCreate(&graph, 0));
  const cudaError_t result =
      cudaGraphAddMemAllocNode(out == nullptr ? nullptr : &node, graph, nullptr, 0, &about);
  OK(cudaGraphDestroy(graph));
  return result;
}

cudaError_t captured(void** out, size_t bytes) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  const cudaError_t result = cudaMallocAsync(out, bytes, stream);
  OK(cudaStreamEndCapture(stream, &graph));
  size_t nodes = 99;
  OK(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK(nodes == 0);  // what failed is no part of the graph
  OK(cudaGraphDestroy(graph));
  OK(cudaStreamDestroy(stream));
  return result;
}

cudaError_t physical(void** out, size_t bytes) {
  CUmemAllocationProp about{};
  about.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  about.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const size_t pages = bytes / (2 * kMiB) * (2 * kMiB);  // else it is not a size at all
  return code(cuMemCreate(reinterpret_cast<CUmemGenericAllocationHandle*>(out), pages, &about, 0));
}

cudaError_t address_space(void** out, size_t bytes) {
  return code(cuMemAddressReserve(as_address(out), bytes / (2 * kMiB) * (2 * kMiB), 0, 0, 0));
}

cudaError_t external(void** out, size_t bytes) {
  cudaExternalMemory_t memory = nullptr;
  cudaExternalMemoryHandleDesc about{};
  about.type = cudaExternalMemoryHandleTypeOpaqueFd;
  about.size = bytes;
  const cudaError_t imported = cudaImportExternalMemory(&memory, &about);
  if (imported != cudaSuccess) return imported;
  cudaExternalMemoryBufferDesc buffer{};
  buffer.size = bytes;
  const cudaError_t result = cudaExternalMemoryGetMappedBuffer(out, memory, &buffer);
  OK(cudaDestroyExternalMemory(memory));
  return result;
}

const Allocator kAllocators[] = {
    {"cudaMalloc", [](void** out, size_t n) { return cudaMalloc(out, n); }, cudaSuccess},
    {"cudaMallocHost", [](void** out, size_t n) { return cudaMallocHost(out, n); }, cudaSuccess},
    {"cudaHostAlloc", [](void** out, size_t n) { return cudaHostAlloc(out, n, 0); }, cudaSuccess},
    {"cudaMallocManaged",
     [](void** out, size_t n) { return cudaMallocManaged(out, n, cudaMemAttachGlobal); },
     cudaErrorInvalidValue},
    {"cudaMallocAsync", [](void** out, size_t n) { return cudaMallocAsync(out, n, nullptr); },
     cudaSuccess},
    {"cudaMallocFromPoolAsync",
     [](void** out, size_t n) { return cudaMallocFromPoolAsync(out, n, default_pool(), nullptr); },
     cudaSuccess},
    {"cudaMallocPitch, wide", [](void** out, size_t n) { return pitched(out, n, 2); }, cudaSuccess},
    {"cudaMallocPitch, high", [](void** out, size_t n) { return pitched(out, 1 << 20, n); },
     cudaSuccess},
    {"cudaMalloc3D, wide", [](void** out, size_t n) { return cubic(out, n, 3, 5); }, cudaSuccess},
    {"cudaMalloc3D, high", [](void** out, size_t n) { return cubic(out, 1 << 16, n, 5); },
     cudaSuccess},
    {"cudaMalloc3D, deep", [](void** out, size_t n) { return cubic(out, 1 << 16, 5, n); },
     cudaSuccess},
    {"cuMemAlloc", [](void** out, size_t n) { return code(cuMemAlloc(as_address(out), n)); },
     cudaErrorInvalidValue},
    {"cuMemAllocPitch, wide", [](void** out, size_t n) { return of_driver_pitched(out, n, 3); },
     cudaErrorInvalidValue},
    {"cuMemAllocPitch, high", [](void** out, size_t n) { return of_driver_pitched(out, 999, n); },
     cudaErrorInvalidValue},
    {"cuMemAllocManaged",
     [](void** out, size_t n) { return code(cuMemAllocManaged(as_address(out), n, 1)); },
     cudaErrorInvalidValue},
    {"cuMemHostAlloc", [](void** out, size_t n) { return code(cuMemHostAlloc(out, n, 0)); },
     cudaErrorInvalidValue},
    {"node of a graph", of_graph, cudaErrorInvalidValue},
    {"cuMemCreate", physical, cudaErrorInvalidValue},
    {"cuMemAddressReserve", address_space, cudaErrorInvalidValue},
    {"imported memory", external, cudaErrorInvalidValue},
};

void allocators() {
  for (const Allocator& allocator : kAllocators) {
    for (const size_t bytes : kHuge) {
      void* out = kUntouched;
      const cudaError_t result = allocator.call(&out, bytes);
      if (result != cudaErrorMemoryAllocation) {
        std::fprintf(stderr, "%s of %#zx bytes gave %d\n", allocator.name, bytes, result);
        ++g_failures;
      }
      CHECK(out == kUntouched || out == nullptr);
    }
    void* out = kUntouched;
    const cudaError_t nothing = allocator.call(&out, 0);
    if (static_cast<int>(nothing) != allocator.of_nothing) {
      std::fprintf(stderr, "%s of nothing gave %d\n", allocator.name, nothing);
      ++g_failures;
    }
    CHECK(nothing != cudaSuccess || out == nullptr);
    const cudaError_t nowhere = allocator.call(nullptr, 4 * kMiB);
    if (nowhere != cudaErrorInvalidValue) {
      std::fprintf(stderr, "%s to a null pointer gave %d\n", allocator.name, nowhere);
      ++g_failures;
    }
  }
  void* out = nullptr;
  CHECK_CODE(captured(&out, SIZE_MAX), cudaErrorMemoryAllocation);
  CUdeviceptr range = 0;
  CHECK_CODE(cuMemAddressReserve(&range, 2 * kMiB, 3 * kMiB, 0, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_CODE(cudaMallocPitch(&out, nullptr, 5, 5), cudaErrorInvalidValue);
}

// Pointers that no copy may use: `device` is 1 MiB of the device, `host` as much of the host.
void copies(char* device, char* host) {
  struct {
    const char* name;
    void* to;
    const void* from;
    size_t bytes;
  } const wrong[] = {
      {"from null", device, nullptr, 8},
      {"to null", nullptr, device, 8},
      {"host to null", nullptr, host, 8},
      {"near null", device, reinterpret_cast<void*>(8), 8},
      {"of too much", device, host, SIZE_MAX},
      {"past the end", device, host, kMiB + 1},
      {"past the end, from inside", device + 512, host, kMiB},
      {"from past the end", host, device, kMiB + 1},
      {"of freed memory", host, device + 64 * kMiB, 8},
      {"to freed memory", device + 64 * kMiB, host, 8},
  };
  for (const auto& row : wrong) {
    const auto expect = [&](const char* call, cudaError_t result) {
      if (result == cudaErrorInvalidValue) return;
      std::fprintf(stderr, "%s %s gave %d\n", call, row.name, result);
      ++g_failures;
    };
    expect("cudaMemcpy", cudaMemcpy(row.to, row.from, row.bytes, cudaMemcpyDefault));
    expect("cudaMemcpyAsync",
           cudaMemcpyAsync(row.to, row.from, row.bytes, cudaMemcpyDefault, nullptr));
    expect("cudaMemcpyPeer", cudaMemcpyPeer(row.to, 0, row.from, 0, row.bytes));
    expect("cudaMemcpy2D",
           cudaMemcpy2D(row.to, row.bytes, row.from, row.bytes, row.bytes, 1, cudaMemcpyDefault));
    cudaMemcpy3DParms box{};
    box.srcPtr = {const_cast<void*>(row.from), row.bytes, row.bytes, 1};
    box.dstPtr = {row.to, row.bytes, row.bytes, 1};
    box.extent = {row.bytes, 1, 1};
    box.kind = cudaMemcpyDefault;
    expect("cudaMemcpy3D", cudaMemcpy3D(&box));
  }
  OK(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault));  // nothing is copied
  for (const int kind : {-1, 5, 77}) {
    const auto direction = static_cast<cudaMemcpyKind>(kind);
    CHECK_CODE(cudaMemcpy(device, host, 8, direction), cudaErrorInvalidMemcpyDirection);
    CHECK_CODE(cudaMemcpy2D(device, 8, host, 8, 8, 2, direction), cudaErrorInvalidMemcpyDirection);
  }
  CHECK_CODE(cudaMemcpy2D(device, 7, host, 8, 8, 2, cudaMemcpyDefault), cudaErrorInvalidPitchValue);
  CHECK_CODE(cudaMemcpy2D(device, 512, host, 512, 8, SIZE_MAX / 8, cudaMemcpyDefault),
             cudaErrorInvalidValue);
  CHECK_CODE(cudaMemcpy3D(nullptr), cudaErrorInvalidValue);
}

void fills(char* device, char* unknown) {
  CHECK_CODE(cudaMemset(nullptr, 0, 8), cudaErrorInvalidValue);
  CHECK_CODE(cudaMemset(unknown, 0, 8), cudaErrorInvalidValue);
  CHECK_CODE(cudaMemset(device, 0, SIZE_MAX), cudaErrorInvalidValue);
  CHECK_CODE(cudaMemset(device, 0, kMiB + 1), cudaErrorInvalidValue);
  CHECK_CODE(cudaMemset(device + 64 * kMiB, 0, 8), cudaErrorInvalidValue);
  CHECK_CODE(cudaMemsetAsync(nullptr, 0, 8, nullptr), cudaErrorInvalidValue);
  CHECK_CODE(cudaMemset2D(device, 512, 0, 8, SIZE_MAX / 8), cudaErrorInvalidValue);
  CHECK_CODE(cudaMemset2D(device, 4, 0, 8, 2), cudaErrorInvalidValue);
  const auto address = reinterpret_cast<CUdeviceptr>(device);
  CHECK_CODE(cuMemsetD32(address, 0, SIZE_MAX / 2), CUDA_ERROR_INVALID_VALUE);
  CHECK_CODE(cuMemsetD32(address + 2, 0, 8), CUDA_ERROR_INVALID_VALUE);
  CHECK_CODE(cuMemsetD16(address + 1, 0, 8), CUDA_ERROR_INVALID_VALUE);
  OK(cudaMemset(device, 1, kMiB));
}

void ranges(char* device) {
  const auto address = reinterpret_cast<CUdeviceptr>(device);
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr range = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp about{};
  about.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  about.location = access.location;
  OK(cuMemAddressReserve(&range, 4 * kMiB, 0, 0, 0));
  OK(cuMemCreate(&handle, 2 * kMiB, &about, 0));
  OK(cuMemMap(range, 2 * kMiB, 0, handle, 0));
  CHECK_CODE(cuMemMap(range + 2 * kMiB, 4 * kMiB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  for (const size_t bytes : {4 * kMiB, SIZE_MAX, static_cast<size_t>(SIZE_MAX - range + 1)}) {
    CHECK_CODE(cuMemSetAccess(range, bytes, &access, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemUnmap(range, bytes), CUDA_ERROR_INVALID_VALUE);
  }
  CHECK_CODE(cuMemAddressFree(range, 4 * kMiB), CUDA_ERROR_INVALID_VALUE);  // still mapped
  CHECK_CODE(cuMemAddressFree(address, kMiB), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemUnmap(range, 2 * kMiB));
  OK(cuMemRelease(handle));
  OK(cuMemAddressFree(range, 4 * kMiB));
  static char own[4096];
  CHECK_CODE(cudaHostRegister(nullptr, 8, 0), cudaErrorInvalidValue);
  CHECK_CODE(cudaHostRegister(own, 0, 0), cudaErrorInvalidValue);
  CHECK_CODE(cudaHostRegister(own, SIZE_MAX, 0), cudaErrorInvalidValue);
  CHECK_CODE(cudaHostRegister(own, sizeof own, 1u << 20), cudaErrorInvalidValue);
  CHECK_CODE(cudaHostUnregister(own), cudaErrorHostMemoryNotRegistered);
}

}  // namespace

int main() {
  size_t before = 0, after = 0, total = 0;
  char* device = nullptr;
  char* freed = nullptr;
  static char host[kMiB + 1];
  OK(cudaMemGetInfo(&before, &total));
  allocators();
  OK(cudaMalloc(reinterpret_cast<void**>(&device), kMiB));
  OK(cudaMalloc(reinterpret_cast<void**>(&freed), 128 * kMiB));
  OK(cudaFree(freed));
  copies(device, host);
  fills(device, host);
  ranges(device);
  OK(cudaFree(device));
  OK(cudaMemGetInfo(&after, &total));
  CHECK(before == after);
  cudaGetLastError();
  return g_failures;
}
