// Runtime calls beyond cudaMalloc: arrays, pools, memory of other APIs, memory nodes of graphs;
// with `share`, memory that a second process (this program with `open`) opens through a file
// descriptor and an IPC handle.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "sim_check.h"

namespace {

constexpr size_t kMiB = 1u << 20;
const cudaChannelFormatDesc kFloat4{32, 32, 32, 32, cudaChannelFormatKindFloat};

void arrays() {
  cudaArray_t array = nullptr;
  cudaMipmappedArray_t mipmap = nullptr;
  const cudaChannelFormatDesc made =
      cudaCreateChannelDesc(8, 8, 0, 0, cudaChannelFormatKindUnsigned);
  CHECK(made.x == 8 && made.y == 8 && made.z == 0 && made.w == 0);
  CHECK(made.f == cudaChannelFormatKindUnsigned);
  OK(cudaMallocArray(&array, &made, 64, 64, 0));
  OK(cudaFreeArray(array));
  OK(cudaMallocArray(&array, &kFloat4, 64, 64, 0));
  OK(cudaFreeArray(array));
  OK(cudaMallocArray(&array, &kFloat4, 64, 64, cudaArraySurfaceLoadStore));
  OK(cudaFreeArray(array));
  OK(cudaMalloc3DArray(&array, &kFloat4, {16, 16, 4}, cudaArrayLayered));
  OK(cudaFreeArray(array));
  OK(cudaMallocMipmappedArray(&mipmap, &kFloat4, {64, 32, 0}, 4, 0));
  cudaArray_t level = nullptr;
  OK(cudaGetMipmappedArrayLevel(&level, mipmap, 2));
  OK(cudaFreeMipmappedArray(mipmap));
  OK(cudaFreeArray(nullptr));
  const cudaChannelFormatDesc odd{3, 0, 0, 0, cudaChannelFormatKindFloat};
  CHECK_CODE(cudaMallocArray(&array, &odd, 4, 4, 0), cudaErrorInvalidChannelDescriptor);
  CHECK_CODE(cudaMalloc3DArray(&array, &kFloat4, {1 << 20, 1 << 16, 1}, 0),
             cudaErrorMemoryAllocation);
  cudaGetLastError();
}

void external_memory() {
  cudaExternalMemory_t memory = nullptr;
  cudaExternalMemoryHandleDesc about{};
  about.type = cudaExternalMemoryHandleTypeOpaqueFd;
  about.size = 4 * kMiB;
  OK(cudaImportExternalMemory(&memory, &about));
  cudaExternalMemoryBufferDesc buffer{};
  buffer.size = kMiB;
  void* mapped = nullptr;
  OK(cudaExternalMemoryGetMappedBuffer(&mapped, memory, &buffer));
  OK(cudaFree(mapped));
  OK(cudaDestroyExternalMemory(memory));
}

void graphs() {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaGraphNode_t node = nullptr, end = nullptr;
  cudaMemAllocNodeParams about{};
  about.poolProps.allocType = cudaMemAllocationTypePinned;
  about.poolProps.location.type = cudaMemLocationTypeDevice;
  about.bytesize = 3 * kMiB;
  OK(cudaGraphCreate(&graph, 0));
  OK(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &about));
  OK(cudaGraphAddMemFreeNode(&end, graph, &node, 1, about.dptr));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphLaunch(exec, nullptr));
  uint64_t reserved = 0;
  OK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &reserved));
  CHECK(reserved == 4 * kMiB);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  OK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &reserved));
  CHECK(reserved == 4 * kMiB);  // stays until it is trimmed
  OK(cudaDeviceGraphMemTrim(0));
  OK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &reserved));
  CHECK(reserved == 0);
}

cudaMemPool_t make_pool() {
  cudaMemPool_t pool = nullptr;
  cudaMemPoolProps about{};
  about.allocType = cudaMemAllocationTypePinned;
  about.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  about.location.type = cudaMemLocationTypeDevice;
  OK(cudaMemPoolCreate(&pool, &about));
  return pool;
}

template <typename T>
std::string as_hex(const T& value) {
  std::string text;
  char digits[3];
  for (const unsigned char byte :
       std::string(reinterpret_cast<const char*>(&value), sizeof value)) {
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

template <typename T>
T from_hex(const char* text) {
  T value{};
  for (size_t i = 0; i < sizeof value; ++i) {
    const char digits[] = {text[2 * i], text[2 * i + 1], '\0'};
    reinterpret_cast<unsigned char*>(&value)[i] =
        static_cast<unsigned char>(std::strtoul(digits, nullptr, 16));
  }
  return value;
}

// The owner holds 8 MiB plainly and 2 MiB in a pool and an event; the child opens all three.
void share(const char* program) {
  void* plain = nullptr;
  void* pooled = nullptr;
  OK(cudaMalloc(&plain, 8 * kMiB));
  cudaIpcMemHandle_t handle{};
  OK(cudaIpcGetMemHandle(&handle, plain));
  cudaEvent_t event = nullptr, timed = nullptr;
  cudaIpcEventHandle_t shared_event{};
  OK(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
  CHECK_CODE(cudaEventCreateWithFlags(&timed, cudaEventInterprocess), cudaErrorInvalidValue);
  OK(cudaEventCreate(&timed));
  CHECK_CODE(cudaIpcGetEventHandle(&shared_event, timed), cudaErrorInvalidResourceHandle);
  OK(cudaEventDestroy(timed));
  OK(cudaEventRecord(event, nullptr));
  OK(cudaIpcGetEventHandle(&shared_event, event));
  CHECK_CODE(cudaIpcOpenEventHandle(&timed, shared_event), cudaErrorDeviceUninitialized);
  const cudaMemPool_t pool = make_pool();
  OK(cudaMallocFromPoolAsync(&pooled, 2 * kMiB, pool, nullptr));
  cudaMemPoolPtrExportData pointer{};
  OK(cudaMemPoolExportPointer(&pointer, pooled));
  int fd = -1;
  OK(cudaMemPoolExportToShareableHandle(&fd, pool, cudaMemHandleTypePosixFileDescriptor, 0));
  const int inherited = ::dup(fd);  // without close-on-exec
  std::string words[] = {program,
                         "open",
                         as_hex(handle),
                         as_hex(pointer),
                         std::to_string(inherited),
                         as_hex(shared_event)};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                       words[4].data(), words[5].data(), nullptr};
  pid_t child = 0;
  CHECK(::posix_spawn(&child, program, nullptr, nullptr, arguments, environ) == 0);
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  OK(cudaEventQuery(event));
  OK(cudaEventDestroy(event));
  OK(cudaFreeAsync(pooled, nullptr));
  OK(cudaMemPoolDestroy(pool));
  OK(cudaFree(plain));
}

void open(char** words) {
  const auto handle = from_hex<cudaIpcMemHandle_t>(words[2]);
  auto pointer = from_hex<cudaMemPoolPtrExportData>(words[3]);
  void* opened = nullptr;
  void* again = nullptr;
  void* own = nullptr;
  void* pooled = nullptr;
  OK(cudaMalloc(&own, kMiB));
  OK(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess));
  OK(cudaIpcOpenMemHandle(&again, handle, cudaIpcMemLazyEnablePeerAccess));
  CHECK(again == opened);
  CHECK_CODE(cudaFree(opened), cudaErrorInvalidValue);  // it is closed, not freed
  OK(cudaIpcCloseMemHandle(opened));
  OK(cudaIpcCloseMemHandle(opened));
  CHECK_CODE(cudaIpcCloseMemHandle(opened), cudaErrorInvalidValue);
  cudaMemPool_t imported = nullptr;
  OK(cudaMemPoolImportFromShareableHandle(&imported, reinterpret_cast<void*>(std::atol(words[4])),
                                          cudaMemHandleTypePosixFileDescriptor, 0));
  OK(cudaMemPoolImportPointer(&pooled, imported, &pointer));
  cudaEvent_t event = nullptr;
  OK(cudaIpcOpenEventHandle(&event, from_hex<cudaIpcEventHandle_t>(words[5])));
  OK(cudaEventQuery(event));
  OK(cudaStreamWaitEvent(nullptr, event, 0));
  OK(cudaEventRecord(event, nullptr));
  OK(cudaEventSynchronize(event));
  cudaIpcEventHandle_t again_shared{};
  CHECK_CODE(cudaIpcGetEventHandle(&again_shared, event), cudaErrorInvalidResourceHandle);
  OK(cudaEventDestroy(event));
  CHECK_CODE(cudaIpcOpenEventHandle(&event, cudaIpcEventHandle_t{}),
             cudaErrorInvalidResourceHandle);
  OK(cudaFreeAsync(pooled, nullptr));
  OK(cudaMemPoolDestroy(imported));
  OK(cudaFree(own));
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  if (what == "open" && count == 6) {
    open(words);
  } else if (what == "share") {
    share("/proc/self/exe");
  } else {
    arrays();
    external_memory();
    graphs();
  }
  return g_failures;
}
