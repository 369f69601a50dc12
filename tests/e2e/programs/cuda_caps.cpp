// What a program sees of a device that is capped, or whose calls fail on purpose. One line per
// answer, so that two runs can be compared: a capped large card with a small one.
//   kinds     each kind of memory until it is refused: how often it was given, codes, last errors
//   info      what the device says of itself
//   balance   threads that allocate and free, fork, resets, failed calls: bytes that are left over
//   contexts  what contexts of the program's own give back when they end
//   calls N   N times cudaMalloc of 1 MiB: one character each, . or x
//   hold MIB  allocates MIB, prints the free bytes, waits for end of input, then ends
//   fail      a refused call, then waits for a signal for ever
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

namespace {

constexpr size_t kMiB = 1 << 20;

void* driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  if (cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status) != 0 ||
      found == nullptr) {
    std::printf("no %s\n", name);
    std::exit(1);
  }
  return found;
}
#define DRIVER(name) reinterpret_cast<decltype(&::name)>(driver(#name))

size_t free_bytes() {
  size_t available = 0;
  size_t total = 0;
  return cudaMemGetInfo(&available, &total) == cudaSuccess ? available : 0;
}

using Allocate = std::function<int(void** out, size_t bytes)>;
using Free = std::function<int(void* memory)>;

// Pieces of 100 MiB until one is refused; the freed ones can be had again.
void fill(const char* kind, const Allocate& allocate, const Free& release) {
  std::vector<void*> pieces;
  void* piece = nullptr;
  int result = 0;
  while (pieces.size() < 60 && (result = allocate(&piece, 100 * kMiB)) == 0) {
    pieces.push_back(piece);
  }
  const int last = cudaGetLastError();
  const int cleared = cudaGetLastError();
  std::printf("%s: %zu pieces, then %d, last %d, again %d, free %zu MiB\n", kind, pieces.size(),
              result, last, cleared, free_bytes() / kMiB);
  if (!pieces.empty()) {
    std::printf("  free %d", release(pieces.back()));
    std::printf(" and again %d", allocate(&pieces.back(), 100 * kMiB));
  }
  for (void* memory : pieces) release(memory);
  std::printf(", free at the end %zu MiB, last %d\n", free_bytes() / kMiB, cudaGetLastError());
}

int create(void** out, size_t bytes) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemGenericAllocationHandle handle = 0;
  const int result = DRIVER(cuMemCreate)(&handle, bytes, &properties, 0);
  *out = reinterpret_cast<void*>(handle);
  return result;
}

void kinds() {
  cudaFree(nullptr);
  fill(
      "cudaMalloc", [](void** out, size_t bytes) { return cudaMalloc(out, bytes); }, cudaFree);
  fill(
      "cuMemAlloc",
      [](void** out, size_t bytes) {
        return DRIVER(cuMemAlloc)(reinterpret_cast<CUdeviceptr*>(out), bytes);
      },
      [](void* memory) { return DRIVER(cuMemFree)(reinterpret_cast<CUdeviceptr>(memory)); });
  fill(
      "cudaMallocPitch",
      [](void** out, size_t bytes) {
        size_t pitch = 0;
        return cudaMallocPitch(out, &pitch, 1024, bytes / 1024);
      },
      cudaFree);
  fill(
      "cudaMalloc3D",
      [](void** out, size_t bytes) {
        cudaPitchedPtr pitched{};
        const int result = cudaMalloc3D(&pitched, cudaExtent{1024, bytes / 4096, 4});
        *out = pitched.ptr;
        return result;
      },
      cudaFree);
  fill(
      "cudaMallocAsync",
      [](void** out, size_t bytes) { return cudaMallocAsync(out, bytes, nullptr); },
      [](void* memory) {
        const int result = cudaFreeAsync(memory, nullptr);
        cudaDeviceSynchronize();
        return result;
      });
  fill("cuMemCreate", create, [](void* memory) {
    return DRIVER(cuMemRelease)(reinterpret_cast<CUmemGenericAllocationHandle>(memory));
  });
  fill(
      "cudaMallocArray",
      [](void** out, size_t bytes) {
        const cudaChannelFormatDesc texel{32, 32, 32, 32, cudaChannelFormatKindFloat};
        return cudaMallocArray(reinterpret_cast<cudaArray_t*>(out), &texel, 16 * 1024,
                               bytes / (16 * 16 * 1024));
      },
      [](void* memory) { return cudaFreeArray(static_cast<cudaArray_t>(memory)); });
  fill(
      "cudaHostAlloc", [](void** out, size_t bytes) { return cudaHostAlloc(out, bytes, 0); },
      cudaFreeHost);
  fill(
      "cudaHostRegister",
      [](void** out, size_t bytes) {
        *out = std::malloc(bytes);
        return cudaHostRegister(*out, bytes, 0);
      },
      [](void* memory) {
        const int result = cudaHostUnregister(memory);
        std::free(memory);
        return result;
      });
}

void info() {
  size_t available = 0;
  size_t total = 0;
  cudaMemGetInfo(&available, &total);
  std::printf("runtime total %zu\n", total);
  DRIVER(cuMemGetInfo)(&available, &total);
  std::printf("driver total %zu\n", total);
  DRIVER(cuDeviceTotalMem)(&total, 0);
  std::printf("device total %zu\n", total);
  cudaDeviceProp about{};
  cudaGetDeviceProperties(&about, 0);
  std::printf("properties %zu\n", about.totalGlobalMem);
  void* memory = nullptr;
  cudaMalloc(&memory, 256 * kMiB);
  const size_t before = available;
  cudaMemGetInfo(&available, &total);
  std::printf("taken %zu\n", before - available);
  std::printf("managed %d\n", cudaMallocManaged(&memory, 8192 * kMiB));
}

void churn(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<void*> live;
  for (int step = 0; step < 2000; ++step) {
    void* memory = nullptr;
    if (random() % 2 == 0 || live.empty()) {
      const size_t bytes = (1 + random() % 40) * kMiB;
      const int result =
          random() % 3 == 0 ? cudaMallocAsync(&memory, bytes, nullptr) : cudaMalloc(&memory, bytes);
      if (result == cudaSuccess) live.push_back(memory);
    } else {
      std::swap(live[random() % live.size()], live.back());
      cudaFree(live.back());
      live.pop_back();
    }
  }
  for (void* memory : live) cudaFree(memory);
}

void balance() {
  cudaFree(nullptr);
  const size_t before = free_bytes();
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 8; ++seed) threads.emplace_back(churn, seed);
  for (std::thread& thread : threads) thread.join();
  cudaDeviceSynchronize();
  cudaMemPool_t pool = nullptr;
  cudaDeviceGetDefaultMemPool(&pool, 0);
  cudaMemPoolTrimTo(pool, 0);
  std::printf("threads %zd\n", static_cast<ssize_t>(before - free_bytes()));
  void* memory = nullptr;
  cudaMalloc(&memory, 100 * kMiB);
  cudaFree(static_cast<char*>(memory) + 512);  // fails
  std::printf("failed free %zu\n", (before - free_bytes()) / kMiB);
  std::printf("zero %d\n", cudaMalloc(&memory, 0));
  cudaDeviceReset();
  std::printf("reset %zd\n", static_cast<ssize_t>(before - free_bytes()));
  std::fflush(stdout);
}

void contexts() {
  cudaFree(nullptr);
  const size_t before = free_bytes();
  void* primary = nullptr;
  cudaMalloc(&primary, 10 * kMiB);
  using Create = int (*)(CUcontext*, unsigned, CUdevice);  // as before CUDA 13
  const auto create_context = reinterpret_cast<Create>(driver("cuCtxCreate"));
  CUcontext own = nullptr;
  CUdeviceptr inside = 0;
  std::printf("create %d", create_context(&own, 0, 0));
  std::printf(" alloc %d\n", DRIVER(cuMemAlloc)(&inside, 100 * kMiB));
  size_t available = 0;
  size_t total = 0;
  DRIVER(cuMemGetInfo)(&available, &total);
  std::printf("taken %zu\n", (before - available) / kMiB);
  std::printf("destroy %d\n", DRIVER(cuCtxDestroy)(own));
  cudaSetDevice(0);
  std::printf("left %zu\n", (before - free_bytes()) / kMiB);
  cudaFree(primary);
  std::printf("left %zu\n", (before - free_bytes()) / kMiB);
}

void calls(int count) {
  for (int i = 0; i < count; ++i) {
    void* memory = nullptr;
    std::putchar(cudaMalloc(&memory, kMiB) == cudaSuccess ? '.' : 'x');
  }
  std::putchar('\n');
}

void hold(size_t mib) {
  void* memory = nullptr;
  const int result = cudaMalloc(&memory, mib * kMiB);
  std::printf("%d %zu\n", result, free_bytes() / kMiB);
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
}

void fail() {
  void* memory = nullptr;
  const int result = cudaMalloc(&memory, size_t{1} << 45);
  std::printf("%d\n", result);
  std::fflush(stdout);
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  const char* const mode = argc > 1 ? argv[1] : "kinds";
  const int number = argc > 2 ? std::atoi(argv[2]) : 0;
  if (std::strcmp(mode, "kinds") == 0) kinds();
  if (std::strcmp(mode, "info") == 0) info();
  if (std::strcmp(mode, "balance") == 0) balance();
  if (std::strcmp(mode, "contexts") == 0) contexts();
  if (std::strcmp(mode, "calls") == 0) calls(number);
  if (std::strcmp(mode, "hold") == 0) hold(static_cast<size_t>(number));
  if (std::strcmp(mode, "fail") == 0) fail();
  return 0;
}
