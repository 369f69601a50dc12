// The torch adaptor: a small library compiled on the user's machine against the headers of the
// user's own torch (2.4 or later; how: build_command.h) and opened by the shim from inside
// the allocator's first cudaMalloc (its lock is recursive). Not part of libfragscope.so.

#include "torch_adaptor.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/version.h>

namespace {

const fragscope_torch_host* g_host = nullptr;

void on_entry(const c10::cuda::CUDACachingAllocator::TraceEntry& entry) {
  fragscope_torch_entry out{};
  out.action = static_cast<int32_t>(entry.action_);
  out.device = static_cast<int32_t>(entry.device_);
  out.address = static_cast<uint64_t>(entry.addr_);
  out.size = static_cast<uint64_t>(entry.size_);
  out.stream = reinterpret_cast<uint64_t>(entry.stream_);
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  out.pool_first = static_cast<uint64_t>(entry.mempool_.first);
  out.pool_second = static_cast<uint64_t>(entry.mempool_.second);
  out.pool_known = 1;
#endif
  g_host->entry(&out);
}

const fragscope_torch_adaptor kSelf = {FRAGSCOPE_TORCH_ADAPTOR_VERSION, TORCH_VERSION};

}  // namespace

extern "C" __attribute__((visibility("default"))) const fragscope_torch_adaptor*
fragscope_torch_adaptor_start(const fragscope_torch_host* host) {
  if (host == nullptr || host->version != FRAGSCOPE_TORCH_ADAPTOR_VERSION) return nullptr;
  try {
    g_host = host;
    // The call goes through to the allocator of every device.
    c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(on_entry);
    return &kSelf;
  } catch (...) {  // cudaMallocAsync backend: it has no tracker
    return nullptr;
  }
}
