// PyTorch's caching allocator: which blocks it hands out (block plane).
//
// Two sources. libc10_cuda reports every block malloc and free to c10's profiler hook, which is
// overridden here: block sizes and totals, no stream, no requested size. And the adaptor
// (torch_adaptor/, compiled against the user's torch) attaches the allocator's own trace
// tracker: requested sizes, streams, completion of frees, segments. With both, one `alloc` event
// carries what the tracker and the report know of the same block.
//
// But for load_torch_adaptor() all of this runs under the allocator's (recursive) lock: nothing
// here waits for another thread, and the loader is asked for nothing that it could be asked for
// before.
#pragma once

#include <cstdint>

namespace fragscope::shim {

// c10::Device as passed in a register: DeviceType, DeviceIndex.
struct TorchDevice {
  int8_t type;
  int8_t index;
};

// Opens the adaptor of the loaded torch and attaches nothing: outside of the allocator's lock.
void load_torch_adaptor() noexcept;
// `caller` made a call of a function that is new here: if it is PyTorch's allocator, the adaptor is
// opened with the next allocation, so that the tracker sees the first segment and block too.
void look_for_torch(const void* caller) noexcept;
// PyTorch's allocator is in this process: what CUDA refuses it may still get.
bool torch_allocator_seen() noexcept;
// After an allocation was logged.
void attach_torch_if_seen() noexcept;

// A block was handed out (bytes > 0) or given back (bytes < 0).
void on_torch_memory(const void* address, int64_t bytes, uint64_t allocated, uint64_t reserved,
                     TorchDevice device) noexcept;
void on_torch_oom(int64_t bytes, TorchDevice device) noexcept;

}  // namespace fragscope::shim
