// What each hooked function says in the log. One member per kind of call; intercepts.def names the
// one of each function. Called with the host's own arguments: after the call for allocations (out
// pointers are read only when the call succeeded), before it for frees.
#pragma once

#include "event/event.h"
#include "shim/cuda_abi.h"

namespace fragscope::shim {

inline Stream per_thread(Stream stream) {
  return stream == nullptr ? reinterpret_cast<Stream>(kPerThreadStream) : stream;
}

class Observer {
 public:
  // `result`: of the call; kResultPending before it.
  Observer(Event& event, int result) noexcept : event_(event), succeeded_(result == kSuccess) {
    event.result = result;
  }

  template <typename Pointer>
  void device_alloc(const Pointer* out, size_t bytes) noexcept {
    allocation(EventKind::device_alloc, out, bytes, bytes);
  }

  // size = bytes that the pitch makes of it, requested = bytes of the rows.
  template <typename Pointer>
  void pitch_alloc(const Pointer* out, const size_t* pitch, size_t width, size_t height) noexcept {
    const bool known = succeeded_ && pitch != nullptr;
    allocation(EventKind::device_alloc, out, known ? *pitch * height : kUnknown, width * height);
  }

  void pitch_alloc_3d(const PitchedPtr* out, const Extent& extent) noexcept {
    const size_t rows = extent.height * extent.depth;
    const bool known = succeeded_ && out != nullptr;
    allocation(EventKind::device_alloc, known ? &out->ptr : nullptr,
               known ? out->pitch * rows : kUnknown, extent.width * rows);
  }

  template <typename Pointer>
  void managed_alloc(const Pointer* out, size_t bytes, unsigned flags) noexcept {
    allocation(EventKind::managed_alloc, out, bytes, bytes);
    event_.aux2 = flags;
  }

  template <typename Pointer>
  void async_alloc(const Pointer* out, size_t bytes, Stream stream) noexcept {
    allocation(EventKind::async_alloc, out, bytes, bytes);
    event_.stream = value(stream);
  }

  // aux = the pool.
  template <typename Pointer>
  void pool_alloc(const Pointer* out, size_t bytes, MemPool pool, Stream stream) noexcept {
    async_alloc(out, bytes, stream);
    event_.aux = value(pool);
  }

  template <typename Pointer>
  void device_free(Pointer address) noexcept {
    release(EventKind::device_free, value(address));
  }

  template <typename Pointer>
  void async_free(Pointer address, Stream stream) noexcept {
    release(EventKind::async_free, value(address));
    event_.stream = value(stream);
  }

  void pinned_alloc(void* const* out, size_t bytes, unsigned flags) noexcept {
    allocation(EventKind::pinned_alloc, out, bytes, bytes);
    event_.aux2 = flags;
  }

  void pinned_free(const void* address) noexcept {
    release(EventKind::pinned_free, value(address));
  }

  void pinned_register(const void* address, size_t bytes, unsigned flags) noexcept {
    release(EventKind::pinned_register, value(address));
    event_.size = event_.requested = bytes;
    event_.aux2 = flags;
  }

  void pinned_unregister(const void* address) noexcept {
    release(EventKind::pinned_unregister, value(address));
  }

  void va_reserve(const DevicePtr* out, size_t bytes) noexcept {
    allocation(EventKind::va_reserve, out, bytes, bytes);
  }

  void va_range(EventKind kind, DevicePtr address, size_t bytes) noexcept {
    release(kind, address);
    event_.size = event_.requested = bytes;
  }

  // address = the handle; device = where the memory lies.
  void phys_create(const AllocationHandle* out, size_t bytes, const void* properties) noexcept {
    allocation(EventKind::phys_create, out, bytes, bytes);
    const auto* const where = static_cast<const AllocationProperties*>(properties);
    if (where == nullptr) return;
    event_.aux = static_cast<uint64_t>(where->location_type);
    if (where->location_type == kLocationTypeDevice) event_.device = where->location_id;
  }

  void phys_release(AllocationHandle handle) noexcept { release(EventKind::phys_release, handle); }

  void va_map(DevicePtr address, size_t bytes, AllocationHandle handle) noexcept {
    va_range(EventKind::va_map, address, bytes);
    event_.aux = handle;
  }

  void stream_create(const Stream* out, unsigned flags) noexcept {
    event_.kind = EventKind::stream_create;
    if (succeeded_ && out != nullptr) event_.stream = value(*out);
    event_.aux2 = flags;
  }

  // Everything that the device's contexts hold ends: address stays unknown.
  void context_destroy_device(int device) noexcept {
    event_.kind = EventKind::context_destroy;
    event_.device = device;
  }
  void context_destroy_current() noexcept;
  // address = the context; device only when it is the current one.
  void context_destroy(void* context) noexcept;

 private:
  template <typename T>
  static uint64_t value(T* pointer) noexcept {
    return reinterpret_cast<uintptr_t>(pointer);
  }
  static uint64_t value(uint64_t number) noexcept { return number; }

  template <typename Pointer>
  void allocation(EventKind kind, const Pointer* out, uint64_t size, uint64_t requested) noexcept {
    event_.kind = kind;
    event_.size = size;
    event_.requested = requested;
    if (succeeded_ && out != nullptr) event_.address = value(*out);
  }

  void release(EventKind kind, uint64_t address) noexcept {
    event_.kind = kind;
    event_.address = address;
  }

  Event& event_;
  bool succeeded_;
};

}  // namespace fragscope::shim
