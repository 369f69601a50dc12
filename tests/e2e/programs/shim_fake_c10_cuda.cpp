// A stand-in libc10_cuda.so: tells tracker and profiler in PyTorch's order, without allocating.
#include "shim_fake_torch.h"

namespace {

FakeTracker g_tracker = nullptr;
uint64_t g_allocated = 0;
uint64_t g_reserved = 0;
constexpr c10::Device kCuda{1, 0};
constexpr c10::Device kCpu{0, -1};
enum Action { kAlloc, kFreeRequested, kFreeCompleted, kSegmentAlloc, kSegmentFree, kOom = 8 };

void track(Action action, uint64_t address, uint64_t size, uint64_t stream) {
  if (g_tracker != nullptr) g_tracker(action, 0, address, size, stream);
}

// The first segment comes from cudaMalloc when the program has it, as in PyTorch.
extern "C" int cudaMalloc(void** out, size_t bytes) __attribute__((weak));

void segment(uint64_t address, uint64_t bytes) {
  void* unused = nullptr;
  if (cudaMalloc != nullptr) cudaMalloc(&unused, bytes);
  g_reserved += bytes;
  track(kSegmentAlloc, address, bytes, 0);
}

void allocate(uint64_t address, uint64_t requested, uint64_t block, uint64_t stream) {
  track(kAlloc, address, requested, stream);
  g_allocated += block;
  c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(address), static_cast<int64_t>(block),
                                   g_allocated, g_reserved, kCuda);
}

void release(uint64_t address, uint64_t requested, uint64_t block, uint64_t stream) {
  track(kFreeRequested, address, requested, stream);
  track(kFreeCompleted, address, requested, stream);
  g_allocated -= block;
  c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(address), -static_cast<int64_t>(block),
                                   g_allocated, g_reserved, kCuda);
}

}  // namespace

void fake_attach_tracker(FakeTracker tracker) { g_tracker = tracker; }

void fake_torch_run() {
  c10::reportMemoryUsageToProfiler(nullptr, 77, 0, 0, kCpu);
  segment(0x1000000, 2 << 20);
  allocate(0x1000000, 100, 512, 0);
  allocate(0x1000200, 1000, 1024, 7);
  release(0x1000000, 100, 512, 0);
  segment(0x2000000, 20 << 20);
  allocate(0x2000000, 19500000, 20971520, 7);
  track(kOom, 123, 999, 0);
  c10::reportOutOfMemoryToProfiler(999, g_allocated, g_reserved, kCuda);
  track(kSegmentFree, 0x2000000, 20 << 20, 0);
}
