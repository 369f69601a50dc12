// What the stand-ins of libc10.so and libc10_cuda.so offer; the names of c10 mangle as PyTorch's.
#pragma once
#include <cstddef>
#include <cstdint>

#define FAKE_API __attribute__((visibility("default")))

namespace c10 {
struct Device {
  int8_t type;
  int8_t index;
};
FAKE_API void reportMemoryUsageToProfiler(void* address, int64_t bytes, size_t allocated,
                                          size_t reserved, Device device);
FAKE_API void reportOutOfMemoryToProfiler(int64_t bytes, size_t allocated, size_t reserved,
                                          Device device);
}  // namespace c10

extern "C" {
FAKE_API int fake_memory_reports();
FAKE_API int fake_oom_reports();

using FakeTracker = void (*)(int action, int device, uint64_t address, uint64_t size,
                             uint64_t stream);
FAKE_API void fake_attach_tracker(FakeTracker tracker);
// A script of allocations, frees, a CPU report and an out-of-memory error.
FAKE_API void fake_torch_run();
}
