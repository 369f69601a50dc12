// Makes every driver call that makes, maps, resizes or ends memory at least once, linked against
// the driver by name. Built twice: with the legacy and with the per-thread default stream. With
// `import FD`: what its second process does.
#include <cuda.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace {

int g_failures = 0;

#define EXPECT(call, expected)                                                     \
  do {                                                                             \
    const int got = call;                                                          \
    if (got != static_cast<int>(expected)) {                                       \
      std::fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, got); \
      ++g_failures;                                                                \
    }                                                                              \
  } while (false)
#define OK(call) EXPECT(call, CUDA_SUCCESS)

constexpr size_t kPage = 2 << 20;

void plain_memory() {
  CUdeviceptr a = 0, b = 0;
  size_t pitch = 0, free_bytes = 0, total = 0;
  OK(cuMemAlloc(&a, 1000));
  EXPECT(cuMemAlloc(&b, 1ull << 50), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemFree(a));
  EXPECT(cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemAllocPitch(&a, &pitch, 100, 10, 4));
  OK(cuMemFree(a));
  OK(cuMemAllocManaged(&a, 5000, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemFree(a));
  OK(cuMemGetInfo(&free_bytes, &total));
  OK(cuMemGetInfo(nullptr, &total));
}

void host_memory() {
  void* p = nullptr;
  OK(cuMemAllocHost(&p, 4096));
  OK(cuMemFreeHost(p));
  OK(cuMemHostAlloc(&p, 8192, CU_MEMHOSTALLOC_PORTABLE));
  OK(cuMemFreeHost(p));
  static char own[8192];
  OK(cuMemHostRegister(own, sizeof own, 0));
  EXPECT(cuMemHostRegister(own, sizeof own, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  OK(cuMemHostUnregister(own));
}

void pools() {
  CUmemoryPool pool = nullptr, imported = nullptr;
  CUmemPoolProps about{};
  about.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  about.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  about.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  OK(cuMemPoolCreate(&pool, &about));
  cuuint64_t threshold = 1 << 20;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  CUdeviceptr a = 0, b = 0, c = 0;
  OK(cuMemAllocAsync(&a, 3000, nullptr));
  OK(cuMemAllocFromPoolAsync(&b, 7000, pool, nullptr));
  OK(cuMemFreeAsync(a, nullptr));
  CUmemPoolPtrExportData shared{};
  int fd = -1;
  OK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  OK(cuMemPoolExportPointer(&shared, b));
  OK(cuMemPoolImportFromShareableHandle(&imported, reinterpret_cast<void*>(intptr_t{fd}),
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  OK(cuMemPoolImportPointer(&c, imported, &shared));
  OK(cuMemFree(c));
  close(fd);
  OK(cuMemPoolTrimTo(pool, 0));
  OK(cuMemFree(b));             // a stream-ordered allocation may be freed by cuMemFree
  OK(cuMemAlloc(&a, 1 << 20));  // and the other way round
  OK(cuMemFreeAsync(a, nullptr));
  OK(cuMemAllocFromPoolAsync(&b, 9000, pool, nullptr));
  OK(cuMemPoolDestroy(pool));  // with a live block
  OK(cuMemPoolDestroy(imported));
}

void arrays() {
  CUarray array = nullptr;
  CUmipmappedArray mipmap = nullptr;
  const CUDA_ARRAY_DESCRIPTOR flat{64, 32, CU_AD_FORMAT_FLOAT, 4};
  OK(cuArrayCreate(&array, &flat));
  OK(cuArrayDestroy(array));
  const CUDA_ARRAY3D_DESCRIPTOR deep{32, 16, 8, CU_AD_FORMAT_HALF, 2, 0};
  OK(cuArray3DCreate(&array, &deep));
  OK(cuArrayDestroy(array));
  OK(cuMipmappedArrayCreate(&mipmap, &deep, 3));
  OK(cuMipmappedArrayDestroy(mipmap));
  const CUDA_ARRAY3D_DESCRIPTOR sparse{32, 16, 0, CU_AD_FORMAT_HALF, 2, CUDA_ARRAY3D_SPARSE};
  EXPECT(cuArray3DCreate(&array, &sparse), CUDA_ERROR_NOT_SUPPORTED);
}

CUmemAllocationProp on_device(CUmemAllocationHandleType type) {
  CUmemAllocationProp about{};
  about.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  about.requestedHandleTypes = type;
  about.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return about;
}

// This program again, as the process that maps what this one made.
void in_another_process(int fd) {
  const int inherited = dup(fd);  // without close-on-exec
  char program[] = "/proc/self/exe", what[] = "import", number[16];
  std::snprintf(number, sizeof number, "%d", inherited);
  char* arguments[] = {program, what, number, nullptr};
  pid_t child = 0;
  int status = -1;
  EXPECT(posix_spawn(&child, program, nullptr, nullptr, arguments, environ), 0);
  waitpid(child, &status, 0);
  EXPECT(status, 0);
  close(inherited);
}

void import(int fd) {
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr range = 0;
  OK(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(intptr_t{fd}),
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  OK(cuMemAddressReserve(&range, 2 * kPage, 0, 0, 0));
  OK(cuMemMap(range, 2 * kPage, 0, handle, 0));
  OK(cuMemRelease(handle));
  OK(cuMemUnmap(range, 2 * kPage));
  OK(cuMemAddressFree(range, 2 * kPage));
}

void virtual_memory() {
  CUmemGenericAllocationHandle handle = 0, again = 0, imported = 0;
  const auto fabric = on_device(CU_MEM_HANDLE_TYPE_FABRIC);
  const auto shareable = on_device(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT(cuMemCreate(&handle, 2 * kPage, &fabric, 0), CUDA_ERROR_NOT_SUPPORTED);  // a probe
  OK(cuMemCreate(&handle, 2 * kPage, &shareable, 0));
  CUdeviceptr range = 0, other = 0;
  OK(cuMemAddressReserve(&range, 8 * kPage, 0, 0, 0));
  OK(cuMemMap(range, 2 * kPage, 0, handle, 0));
  EXPECT(cuMemMap(range, 2 * kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemMap(range + 2 * kPage, 2 * kPage, 0, handle, 0));  // twice
  CUmemAccessDesc access{};
  access.location = shareable.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  OK(cuMemSetAccess(range, 4 * kPage, &access, 1));
  OK(cuMemRelease(handle));  // before the unmap
  OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(range)));
  int fd = -1;
  OK(cuMemExportToShareableHandle(&fd, again, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  OK(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(intptr_t{fd}),
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  in_another_process(fd);
  close(fd);
  OK(cuMemRelease(imported));
  OK(cuMemUnmap(range, 2 * kPage));  // a part
  OK(cuMemRelease(again));
  OK(cuMemUnmap(range + 2 * kPage, 2 * kPage));
  OK(cuMemAddressFree(range, 8 * kPage));
  EXPECT(cuMulticastCreate(&handle, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT(cuMemAddressReserve(&other, 5, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

void other_memory() {
  CUexternalMemory memory = nullptr;
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC about{};
  about.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  about.handle.fd = 0;
  about.size = 4 * kPage;
  OK(cuImportExternalMemory(&memory, &about));
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer{};
  buffer.size = kPage;
  CUdeviceptr mapped = 0;
  OK(cuExternalMemoryGetMappedBuffer(&mapped, memory, &buffer));
  OK(cuMemFree(mapped));
  OK(cuDestroyExternalMemory(memory));
  CUdeviceptr own = 0, opened = 0;
  CUipcMemHandle handle{};
  OK(cuMemAlloc(&own, kPage));
  OK(cuIpcGetMemHandle(&handle, own));
  EXPECT(cuIpcOpenMemHandle(&opened, handle, 1), CUDA_ERROR_INVALID_CONTEXT);  // not in one process
  EXPECT(cuIpcCloseMemHandle(own), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree(own));
}

void graphs() {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr, second = nullptr;
  CUgraphNode node = nullptr, end = nullptr, generic = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS about{};
  about.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  about.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  about.bytesize = 10000;
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &about));
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  std::memcpy(&parameters.alloc, &about, sizeof about);
#if CUDA_VERSION >= 13000
  OK(cuGraphAddNode(&generic, graph, nullptr, nullptr, 0, &parameters));
#else
  OK(cuGraphAddNode(&generic, graph, nullptr, 0, &parameters));
#endif
  OK(cuGraphAddMemFreeNode(&end, graph, &node, 1, about.dptr));
  OK(cuGraphInstantiate(&exec, graph, 0));
  EXPECT(cuGraphInstantiate(&second, graph, 0), CUDA_ERROR_NOT_SUPPORTED);  // one at a time
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuMemFree(parameters.alloc.dptr));
  OK(cuGraphExecDestroy(exec));
  CUDA_GRAPH_INSTANTIATE_PARAMS how{};
  OK(cuGraphInstantiateWithParams(&exec, graph, &how));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuDeviceGraphMemTrim(0));
}

void captured(CUstreamCaptureMode mode) {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUdeviceptr inside = 0, plain = 0;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamBeginCapture(stream, mode));
  OK(cuMemAllocAsync(&inside, 20000, stream));
  OK(cuMemsetD8Async(inside, 0, 20000, stream));  // of memory that is not there before the launch
  EXPECT(cuMemsetD8Async(inside + 4 * kPage, 0, 1, stream), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFreeAsync(inside, stream));
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
    OK(cuMemAlloc(&plain, 1000));
    OK(cuMemFree(plain));
  }
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiate(&exec, graph, 0));
  OK(cuGraphLaunch(exec, stream));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuStreamDestroy(stream));
}

// Handles rise in the order of creation, whatever holes the heap has, and the lowest is used again.
void stream_handles() {
  std::vector<std::unique_ptr<char[]>> holes;
  for (int i = 0; i < 400; ++i) holes.push_back(std::make_unique<char[]>(64 + i % 40 * 8));
  std::vector<CUstream> streams(64);
  for (CUstream& stream : streams) {
    for (int i = 0; i < 6; ++i) holes[(&stream - streams.data()) * 37 % 400 / 7 * 7 + i].reset();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  if (!std::is_sorted(streams.begin(), streams.end())) ++g_failures;
  CUstream again = nullptr;
  for (const size_t gone : {40, 7, 20}) OK(cuStreamDestroy(streams[gone]));
  for (const size_t expected : {7, 20, 40}) {
    OK(cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
    if (again != streams[expected]) ++g_failures;
  }
  for (const CUstream stream : streams) OK(cuStreamDestroy(stream));
}

// A context's end pops it once and for the calling thread alone: elsewhere it stays on top,
// destroyed.
void context_that_ended(CUdevice device) {
  CUcontext own = nullptr, top = nullptr;
  CUdeviceptr refused = 0;
  CUdevice answer = 0;
#if CUDA_VERSION >= 13000
  OK(cuCtxCreate(&own, nullptr, 0, device));
#else
  OK(cuCtxCreate(&own, 0, device));
#endif
  OK(cuCtxPushCurrent(own));
  OK(cuCtxDestroy(own));
  EXPECT(cuCtxGetDevice(&answer), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT(cuMemAlloc(&refused, 4096), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT(cuCtxSetCurrent(own), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle physical = 0;
  int fd = -1;
  OK(cuMemCreate(&physical, kPage, &wanted, 0));  // takes no context
  OK(cuMemExportToShareableHandle(&fd, physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  close(fd);
  OK(cuMemRelease(physical));
  OK(cuCtxPopCurrent(&top));
  if (top != own) ++g_failures;
}

}  // namespace

int main(int count, char** words) {
  CUdevice device = 0;
  CUcontext primary = nullptr, own = nullptr;
  CUdeviceptr left = 0;
  OK(cuInit(0));
  OK(cuDeviceGet(&device, 0));
  OK(cuDevicePrimaryCtxRetain(&primary, device));
  OK(cuCtxSetCurrent(primary));
  if (count == 3) {
    import(std::atoi(words[2]));
    return g_failures;
  }
  plain_memory();
  host_memory();
  pools();
  arrays();
  virtual_memory();
  other_memory();
  graphs();
  captured(CU_STREAM_CAPTURE_MODE_GLOBAL);
  captured(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  captured(CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(cuMemAlloc(&left, 100 << 20));  // of the primary context
#if CUDA_VERSION >= 13000
  OK(cuCtxCreate(&own, nullptr, 0, device));
#else
  OK(cuCtxCreate(&own, 0, device));
#endif
  OK(cuMemAlloc(&left, 30 << 20));  // ends with its context
  OK(cuCtxDestroy(own));
  context_that_ended(device);
  stream_handles();
  OK(cuDevicePrimaryCtxRetain(&primary, device));
  OK(cuDevicePrimaryCtxRelease(device));  // not the last reference
  OK(cuDevicePrimaryCtxReset(device));
  return g_failures;
}
