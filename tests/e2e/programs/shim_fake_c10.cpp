// A stand-in libc10.so: the functions that libc10_cuda reports blocks to.
#include "shim_fake_torch.h"

namespace {
int g_memory_reports = 0;
int g_oom_reports = 0;
}  // namespace

namespace c10 {
void reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, Device) { ++g_memory_reports; }
void reportOutOfMemoryToProfiler(int64_t, size_t, size_t, Device) { ++g_oom_reports; }
}  // namespace c10

int fake_memory_reports() { return g_memory_reports; }
int fake_oom_reports() { return g_oom_reports; }
