// The torch adaptor: a small library compiled on the user's machine against the headers of the
// user's own torch (2.4 or later; how: build_command.h) and opened by the shim from inside
// the allocator's first cudaMalloc (its lock is recursive). Not part of libfragscope.so.

#include "torch_adaptor.h"

#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/version.h>

#include <atomic>
#include <cstdlib>
#include <string>

namespace {

#define FRAGSCOPE_TORCH_AT_LEAST(minor) \
  (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= (minor)))

const fragscope_torch_host* g_host = nullptr;
// Settings as the shim knows them. Whoever holds the flag may touch them; nobody waits for it:
// devices have locks of their own, and the next entry looks again.
std::string* g_settings = nullptr;
std::atomic_flag g_settings_taken = ATOMIC_FLAG_INIT;

std::string settings_now() {
#if FRAGSCOPE_TORCH_AT_LEAST(15)
  return c10::CachingAllocator::AcceleratorAllocatorConfig::last_allocator_settings();
#else
  return c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::last_allocator_settings();
#endif
}

bool is_of_environment(const std::string& settings) {
  const char* const own = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
  const char* const generic = std::getenv("PYTORCH_ALLOC_CONF");
  if (own == nullptr && generic == nullptr) return settings.empty();
  return (own != nullptr && settings == own) || (generic != nullptr && settings == generic);
}

void look_at_settings() {
  if (g_settings_taken.test_and_set(std::memory_order_acquire)) return;
  try {
    std::string now = settings_now();
    const bool first = g_settings == nullptr;
    if (first ? !is_of_environment(now) : now != *g_settings)
      g_host->settings(now.data(), now.size());
    if (first) {
      g_settings = new std::string(std::move(now));  // entries come until the process is gone
    } else {
      *g_settings = std::move(now);
    }
  } catch (...) {  // no memory: the next entry looks again
  }
  g_settings_taken.clear(std::memory_order_release);
}

void on_entry(const c10::cuda::CUDACachingAllocator::TraceEntry& entry) {
  using Entry = c10::cuda::CUDACachingAllocator::TraceEntry;
  const auto action = entry.action_;
  // What settings decide: where a block goes, whether a segment is made or given back.
  if (action != Entry::FREE_REQUESTED && action != Entry::FREE_COMPLETED) look_at_settings();
  fragscope_torch_entry out{};
  out.action = static_cast<int32_t>(entry.action_);
  out.device = static_cast<int32_t>(entry.device_);
  out.address = static_cast<uint64_t>(entry.addr_);
  out.size = static_cast<uint64_t>(entry.size_);
  out.stream = reinterpret_cast<uint64_t>(entry.stream_);
#if FRAGSCOPE_TORCH_AT_LEAST(8)
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
    look_at_settings();
    return &kSelf;
  } catch (...) {  // cudaMallocAsync backend: it has no tracker
    return nullptr;
  }
}
