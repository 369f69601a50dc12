// What must hold for programs whose cudaMalloc and cudaFree are served (FRAGSCOPE_ENFORCE=shim):
// one mode each, facts on stdout, the same with and without the policy unless test_shim_served.py
// says otherwise.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kMiB = size_t{1} << 20;

char* allocate(size_t bytes) {
  void* block = nullptr;
  const cudaError_t result = cudaMalloc(&block, bytes);
  if (result != cudaSuccess) std::printf("malloc %d\n", result);
  return static_cast<char*>(block);
}

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  return stream;
}

// Work of `stream` on the block, and an event behind it.
cudaEvent_t work_on(char* block, size_t bytes, cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  cudaMemsetAsync(block, 1, bytes, stream);
  cudaEventRecord(event, stream);
  return event;
}

// When the memory of a freed block is handed out again, the work on it is done.
void streams() {
  int reused = 0;
  int early = 0;
  std::map<char*, cudaEvent_t> last;
  cudaStream_t const used[] = {new_stream(), new_stream(), new_stream(), nullptr};
  for (int step = 0; step < 400; ++step) {
    const size_t bytes = (1 + static_cast<size_t>(step % 5)) * kMiB;
    char* const block = allocate(bytes);
    const auto found = last.find(block);
    if (found != last.end()) {
      ++reused;
      early += cudaEventQuery(found->second) != cudaSuccess;
    }
    last[block] = work_on(block, bytes, used[step % 4]);
    cudaFree(block);
  }
  std::printf("reused %d early %d\n", reused > 0, early);
}

void stream_ordered() {
  cudaStream_t const stream = new_stream();
  char* const block = allocate(3 * kMiB);
  const cudaEvent_t event = work_on(block, 3 * kMiB, stream);
  std::printf("free async %d\n", cudaFreeAsync(block, stream));
  std::printf("again %d\n", cudaFreeAsync(block, stream));
  char* const next = allocate(3 * kMiB);
  std::printf("early %d\n", next == block && cudaEventQuery(event) != cudaSuccess);
  cudaStreamSynchronize(stream);
  cudaFree(next);
}

void destroyed_stream() {
  cudaStream_t const stream = new_stream();
  char* const block = allocate(3 * kMiB);
  cudaStreamDestroy(stream);
  const int result = cudaFreeAsync(block, stream);
  std::printf("free %d last %d\n", result, cudaGetLastError());
  std::printf("still there %d\n", cudaMemset(block, 1, 3 * kMiB));
  std::printf("free %d\n", cudaFree(block));
  std::printf("default %d\n", cudaFreeAsync(allocate(3 * kMiB), nullptr));
  char* const last = allocate(3 * kMiB);
  std::thread([last] { std::printf("thread %d\n", cudaFreeAsync(last, nullptr)); }).join();
}

void refused_pitch() {
  void* out = nullptr;
  size_t pitch = 77;
  std::printf("pitch %d", cudaMallocPitch(&out, &pitch, 1000, kMiB));
  std::printf(" %zu\n", pitch);
  cudaPitchedPtr box{nullptr, 77, 78, 79};
  std::printf("3d %d", cudaMalloc3D(&box, cudaExtent{1000, 1024, 1024}));
  std::printf(" %zu %zu %zu\n", box.pitch, box.xsize, box.ysize);
  CUdeviceptr address = 0;
  std::printf("driver %d", cuMemAllocPitch(&address, &pitch, 1000, kMiB, 4));
  std::printf(" %zu\n", pitch);
  std::printf("none %d\n", cudaMallocPitch(&out, nullptr, 1000, kMiB));
}

void threads() {
  std::mutex mutex;
  std::map<uintptr_t, uintptr_t> live;
  int overlaps = 0;
  int errors = 0;
  const auto worker = [&](unsigned seed) {
    std::vector<std::pair<char*, size_t>> mine;
    for (int step = 0; step < 300; ++step) {
      seed = seed * 1103515245 + 12345;
      if (mine.size() < 4 || seed % 2 == 0) {
        const size_t bytes = 1 + seed % (3 * kMiB);
        char* const block = allocate(bytes);
        const auto at = reinterpret_cast<uintptr_t>(block);
        const std::lock_guard lock(mutex);
        const auto next = live.lower_bound(at);
        overlaps += next != live.end() && next->first < at + bytes;
        overlaps += next != live.begin() && std::prev(next)->second > at;
        live[at] = at + bytes;
        mine.emplace_back(block, bytes);
      } else {
        char* const block = mine.back().first;
        mine.pop_back();
        {
          const std::lock_guard lock(mutex);
          live.erase(reinterpret_cast<uintptr_t>(block));
        }
        errors += cudaFree(block) != cudaSuccess;
      }
    }
  };
  std::vector<std::thread> all;
  for (unsigned seed = 1; seed <= 8; ++seed) all.emplace_back(worker, seed);
  for (std::thread& thread : all) thread.join();
  std::printf("overlaps %d errors %d\n", overlaps, errors);
}

void forked() {
  char* const block = allocate(3 * kMiB);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    void* mine = nullptr;
    const int malloced = cudaMalloc(&mine, kMiB);
    const int freed = cudaFree(block);
    std::printf("child %d %d\n", malloced, freed);
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("parent %d\n", cudaFree(block));
}

void devices() {
  char* blocks[2];
  for (int device = 0; device < 2; ++device) {
    cudaSetDevice(device);
    blocks[device] = allocate(3 * kMiB);
    allocate(3 * kMiB);
  }
  cudaSetDevice(0);
  for (char* const block : blocks) {
    cudaPointerAttributes about{};
    cudaPointerGetAttributes(&about, block + kMiB);
    std::printf("type %d device %d free %d\n", about.type, about.device, cudaFree(block));
  }
  int current = -1;
  cudaGetDevice(&current);
  std::printf("current %d\n", current);
  cudaDeviceReset();  // of device 0 alone
  std::printf("of the reset device %d\n", cudaFree(blocks[0]));
  cudaSetDevice(1);
  char* const again = allocate(3 * kMiB);
  std::printf("other device %d\n", cudaFree(again));
}

void sharing() {
  char* const first = allocate(3 * kMiB);
  char* const second = allocate(3 * kMiB);
  cudaIpcMemHandle_t handle{};
  std::printf("first %d\n", cudaIpcGetMemHandle(&handle, first));
  const int result = cudaIpcGetMemHandle(&handle, second);
  std::printf("second %d last %d\n", result, cudaGetLastError());
}

void pointers() {
  char* const first = allocate(3 * kMiB);
  char* const block = allocate(3 * kMiB);
  char host[64];
  std::memset(host, 7, sizeof host);
  char back[64] = {};
  cudaMemcpy(block + kMiB, host, sizeof host, cudaMemcpyHostToDevice);
  cudaMemcpy(back, block + kMiB, sizeof back, cudaMemcpyDeviceToHost);
  std::printf("copied %d\n", std::memcmp(host, back, sizeof host) == 0);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const int asked = cuMemGetAddressRange(&base, &bytes, reinterpret_cast<CUdeviceptr>(block) + 5);
  std::printf("range %d own %d inside %d\n", asked,
              base == reinterpret_cast<CUdeviceptr>(block) && bytes == 3 * kMiB,
              reinterpret_cast<CUdeviceptr>(block) + 3 * kMiB <= base + bytes);
  std::printf("inside %d last %d\n", cudaFree(block + 512), cudaGetLastError());
  std::printf("foreign %d last %d\n", cudaFree(&base), cudaGetLastError());
  std::printf("free %d %d\n", cudaFree(block), cudaFree(first));
}

void memory_info() {
  size_t before = 0;
  size_t held = 0;
  size_t after = 0;
  size_t total = 0;
  cudaFree(nullptr);
  cudaMemGetInfo(&before, &total);
  char* const block = allocate(100 * kMiB);
  cudaMemGetInfo(&held, &total);
  cudaFree(block);
  cudaMemGetInfo(&after, &total);
  std::printf("held %zu kept %zu\n", (before - held) / kMiB, (before - after) / kMiB);
  // All of it can still be had.
  char* const all = allocate(before);
  std::printf("all %d\n", all != nullptr);
}

// Sizes that no device has: rounding them up must not make them small.
void impossible() {
  const size_t most = ~size_t{0};
  for (const size_t bytes : {most, most - 100, most - 510, most - 511, most - 4096, most - 2 * kMiB,
                             most / 2, size_t{1} << 60, (size_t{1} << 60) - 1, size_t{1} << 50}) {
    void* block = nullptr;
    const cudaError_t result = cudaMalloc(&block, bytes);
    const cudaError_t last = cudaGetLastError();
    std::printf("%d %d last %d %d\n", result, block == nullptr, last, cudaGetLastError());
    CUdeviceptr same = 0;
    const CUresult answer = cuMemAlloc(&same, bytes);
    std::printf("driver %d %d\n", answer, same == 0);
  }
}

// What the policy keeps of a freed block is there for calls that it does not serve.
template <typename Call>
void unserved(const char* name, Call call) {
  char* const block = allocate(700 * kMiB);
  cudaFree(block);
  const int result = call();
  std::printf("%s %d last %d\n", name, result, cudaGetLastError());
}

void room() {
  constexpr size_t kBytes = 700 * kMiB;
  void* out = nullptr;
  unserved("async", [&] { return cudaMallocAsync(&out, kBytes, nullptr); });
  cudaFreeAsync(out, nullptr);
  cudaDeviceSynchronize();
  size_t pitch = 0;
  unserved("pitch", [&] { return cudaMallocPitch(&out, &pitch, kMiB, 700); });
  cudaFree(out);
  unserved("managed", [&] { return cudaMallocManaged(&out, kBytes, cudaMemAttachGlobal); });
  cudaFree(out);
  const cudaChannelFormatDesc texel{32, 0, 0, 0, cudaChannelFormatKindFloat};
  cudaArray_t array = nullptr;
  unserved("array", [&] {
    return cudaMalloc3DArray(&array, &texel, cudaExtent{512, 512, 700}, 0);
  });
  cudaFreeArray(array);
  CUmemAllocationProp about{};
  about.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  about.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  unserved("physical", [&] { return cuMemCreate(&handle, kBytes, &about, 0); });
  // What is really too much fails as ever.
  unserved("async", [&] { return cudaMallocAsync(&out, kBytes, nullptr); });
  cuMemRelease(handle);
}

// The room is made without harm to a capture, and not by a thread that works under one.
void room_under_capture() {
  cudaStream_t const stream = new_stream();
  cudaStream_t const other = new_stream();
  void* out = nullptr;
  cudaGraph_t graph = nullptr;
  char* const block = allocate(700 * kMiB);
  cudaFree(block);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  std::printf("async %d", cudaMallocAsync(&out, 700 * kMiB, other));
  std::printf(" last %d\n", cudaGetLastError());
  std::printf("end %d\n", cudaStreamEndCapture(stream, &graph));
}

void capture() {
  char* const block = allocate(3 * kMiB);
  char* const other = allocate(3 * kMiB);
  cudaStream_t const stream = new_stream();
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  std::printf("free %d last %d\n", cudaFree(block), cudaGetLastError());
  cudaGraph_t graph = nullptr;
  std::printf("end %d\n", cudaStreamEndCapture(stream, &graph));
  cudaGetLastError();
  std::printf("afterwards %d %d\n", cudaFree(block), cudaFree(other));
  // A thread in relaxed mode may free under a capture, and that does not end it.
  char* const late = allocate(3 * kMiB);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  std::printf("relaxed free %d\n", cudaFree(late));
  cudaThreadExchangeStreamCaptureMode(&mode);
  std::printf("end %d mode %d\n", cudaStreamEndCapture(stream, &graph), mode);
}

void contexts() {
  cuInit(0);
  CUcontext own = nullptr;
#if CUDA_VERSION >= 13000
  cuCtxCreate(&own, nullptr, 0, 0);
#else
  cuCtxCreate(&own, 0, 0);
#endif
  CUdeviceptr inside = 0;
  CUdeviceptr small = 0;
  std::printf("alloc %d %d\n", cuMemAlloc(&inside, 3 * kMiB), cuMemAlloc(&small, 1000));
  cuCtxDestroy(own);
  char* const block = allocate(3 * kMiB);
  std::printf("free of the ended context %d\n", cuMemFree(small));
  std::printf("runtime %d\n", cudaFree(block));
}

// For tests/bench/served_speed.py: pairs of cudaFree and cudaMalloc, timed one by one.
void cost(int threads, int pairs) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::vector<long>> times(static_cast<size_t>(threads));
  const auto worker = [pairs](std::vector<long>& own) {
    char* block = allocate(5000);
    for (int pair = 0; pair < pairs; ++pair) {
      const auto start = Clock::now();
      cudaFree(block);
      block = allocate(5000);
      own.push_back(
          std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
    }
    cudaFree(block);
  };
  std::vector<std::thread> all;
  for (std::vector<long>& own : times) all.emplace_back(worker, std::ref(own));
  for (std::thread& thread : all) thread.join();
  std::vector<long> merged;
  for (const std::vector<long>& own : times) merged.insert(merged.end(), own.begin(), own.end());
  std::nth_element(merged.begin(), merged.begin() + static_cast<long>(merged.size() / 2),
                   merged.end());
  std::printf(
      "shim, waiting for the device, recorded: %3d threads: free and allocate %ld ns median\n",
      threads, merged[merged.size() / 2]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "cost") == 0) {
    cost(std::atoi(argv[2]), std::atoi(argv[3]));
    return 0;
  }
  const std::map<std::string, void (*)()> modes = {{"streams", streams},
                                                   {"async", stream_ordered},
                                                   {"threads", threads},
                                                   {"fork", forked},
                                                   {"devices", devices},
                                                   {"sharing", sharing},
                                                   {"pointers", pointers},
                                                   {"info", memory_info},
                                                   {"capture", capture},
                                                   {"contexts", contexts},
                                                   {"impossible", impossible},
                                                   {"destroyed-stream", destroyed_stream},
                                                   {"refused-pitch", refused_pitch},
                                                   {"room", room},
                                                   {"room-under-capture", room_under_capture}};
  const auto mode = modes.find(argc > 1 ? argv[1] : "");
  if (mode == modes.end()) return 2;
  mode->second();
}
