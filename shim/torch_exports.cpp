// Overrides of c10's profiler reports. libc10_cuda calls them on every block malloc and free; each
// is forwarded to libc10's own (by that library's symbol table: torch is usually loaded RTLD_LOCAL,
// where RTLD_NEXT finds nothing).

#include <atomic>

#include "shim/elf_lookup.h"
#include "shim/export.h"
#include "shim/torch_blocks.h"

namespace fragscope::shim {
namespace {

template <typename Function>
Function forward_of(std::atomic<void*>& cell, const char* symbol) {
  void* real = cell.load(std::memory_order_acquire);
  if (real == nullptr) {
    real = find_symbol(find_object("libc10.so"), symbol);
    cell.store(real, std::memory_order_release);
  }
  return reinterpret_cast<Function>(real);
}

}  // namespace
}  // namespace fragscope::shim

using fragscope::shim::TorchDevice;

// An exported override `symbol` params that calls libc10's and then, if it exists, `observe`.
#define FS_TORCH_REPORT(symbol, params, args, observe)                               \
  extern "C" FRAGSCOPE_EXPORT void symbol params;                                    \
  void symbol params {                                                               \
    static constinit std::atomic<void*> real{nullptr};                               \
    const auto forward = fragscope::shim::forward_of<void(*) params>(real, #symbol); \
    if (forward != nullptr) forward args;                                            \
    observe;                                                                         \
  }

FS_TORCH_REPORT(_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE,
                (void* address, int64_t bytes, size_t allocated, size_t reserved,
                 TorchDevice device),
                (address, bytes, allocated, reserved, device),
                fragscope::shim::on_torch_memory(address, bytes, allocated, reserved, device))

// 1.13: signed totals.
FS_TORCH_REPORT(_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE,
                (void* address, int64_t bytes, int64_t allocated, int64_t reserved,
                 TorchDevice device),
                (address, bytes, allocated, reserved, device),
                fragscope::shim::on_torch_memory(address, bytes, static_cast<uint64_t>(allocated),
                                                 static_cast<uint64_t>(reserved), device))

// 1.8 to 1.12 pass the address of a bookkeeping object, earlier ones none: only forwarded.
FS_TORCH_REPORT(_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE,
                (void* object, int64_t bytes, TorchDevice device), (object, bytes, device), )
FS_TORCH_REPORT(_ZN3c1027reportMemoryUsageToProfilerENS_6DeviceEl,
                (TorchDevice device, int64_t bytes), (device, bytes), )

FS_TORCH_REPORT(_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE,
                (int64_t bytes, size_t allocated, size_t reserved, TorchDevice device),
                (bytes, allocated, reserved, device), fragscope::shim::on_torch_oom(bytes, device))
FS_TORCH_REPORT(_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE,
                (int64_t bytes, int64_t allocated, int64_t reserved, TorchDevice device),
                (bytes, allocated, reserved, device), fragscope::shim::on_torch_oom(bytes, device))
