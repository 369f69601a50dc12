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

  // On a stream that captures, the call makes a node of a graph instead of memory.
  template <typename Pointer>
  void async_alloc(const Pointer* out, size_t bytes, Stream stream) noexcept {
    allocation(EventKind::async_alloc, out, bytes, bytes);
    event_.stream = value(stream);
    if (succeeded_) note_capture(EventKind::graph_alloc, stream);
  }

  // aux = the pool; on a stream that captures the graph.
  template <typename Pointer>
  void pool_alloc(const Pointer* out, size_t bytes, MemPool pool, Stream stream) noexcept {
    async_alloc(out, bytes, stream);
    if (event_.kind == EventKind::async_alloc) event_.aux = value(pool);
  }

  template <typename Pointer>
  void device_free(Pointer address) noexcept {
    release(EventKind::device_free, value(address));
  }

  template <typename Pointer>
  void async_free(Pointer address, Stream stream) noexcept {
    release(EventKind::async_free, value(address));
    event_.stream = value(stream);
    note_capture(EventKind::graph_free, stream);
  }

  // The end of what has no more to say than its address or handle.
  template <typename Handle>
  void handle_event(EventKind kind, Handle handle) noexcept {
    release(kind, value(handle));
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

  // Arrays: size unknown (CUDA pads them as it likes), requested = the bytes of their texels.
  void array_alloc(const Array* out, const ChannelDesc* texel, const Extent& extent,
                   unsigned levels, unsigned flags) noexcept;
  void array_alloc(const Array* out, const ArrayDesc* about) noexcept;
  void array_alloc(const Array* out, const Array3dDesc* about, unsigned levels) noexcept;

  void pool_create(const MemPool* out, const PoolProperties* properties) noexcept;
  void pool_trim(MemPool pool, size_t keep) noexcept {
    release(EventKind::pool_trim, value(pool));
    event_.size = keep;
  }
  void pool_set(MemPool pool, int attribute, const void* setting) noexcept;
  void pool_import(const MemPool* out) noexcept {
    allocation(EventKind::pool_import, out, kUnknown, kUnknown);
  }

  // aux = a key made of the shared handle's bytes: equal in the exporting and the opening process.
  template <typename Pointer>
  void ipc_export(const IpcHandle* out, Pointer address) noexcept {
    release(EventKind::ipc_export, value(address));
    if (succeeded_ && out != nullptr) event_.aux = key_of(*out);
  }
  template <typename Pointer>
  void ipc_open(const Pointer* out, const IpcHandle* handle, unsigned flags) noexcept {
    allocation(EventKind::ipc_open, out, kUnknown, kUnknown);
    if (handle != nullptr) event_.aux = key_of(*handle);
    event_.aux2 = flags;
  }

  void external_import(const ExternalMemory* out, const ExternalMemoryDesc* about) noexcept {
    const uint64_t bytes = about != nullptr ? about->bytes : kUnknown;
    allocation(EventKind::external_import, out, bytes, bytes);
    if (about != nullptr) event_.aux = static_cast<uint64_t>(about->type);
  }
  template <typename Pointer>
  void external_map(const Pointer* out, ExternalMemory memory,
                    const ExternalBufferDesc* about) noexcept {
    const uint64_t bytes = about != nullptr ? about->bytes : kUnknown;
    allocation(EventKind::external_map, out, bytes, bytes);
    event_.aux = value(memory);
  }

  // address = the handle; device = where the memory lies; aux2 = shareable handles asked for.
  void phys_create(const AllocationHandle* out, size_t bytes, const void* properties) noexcept {
    allocation(EventKind::phys_create, out, bytes, bytes);
    const auto* const where = static_cast<const AllocationProperties*>(properties);
    if (where == nullptr) return;
    event_.aux = static_cast<uint64_t>(where->location_type);
    event_.aux2 = static_cast<uint64_t>(where->handle_types);
    if (where->location_type == kLocationTypeDevice) event_.device = where->location_id;
  }
  void phys_retain(const AllocationHandle* out, const void* mapped) noexcept {
    allocation(EventKind::phys_retain, out, kUnknown, kUnknown);
    event_.aux = value(mapped);
  }
  void phys_export(AllocationHandle handle, int type) noexcept {
    release(EventKind::phys_export, handle);
    event_.aux = static_cast<uint64_t>(type);
  }
  void phys_import(const AllocationHandle* out, int type) noexcept {
    allocation(EventKind::phys_import, out, kUnknown, kUnknown);
    event_.aux = static_cast<uint64_t>(type);
  }

  void va_access(DevicePtr address, size_t bytes, const AccessDesc* access, size_t count) noexcept {
    va_range(EventKind::va_access, address, bytes);
    if (access != nullptr && count > 0) event_.aux = static_cast<uint64_t>(access->flags);
  }

  void array_map(const ArrayMapInfo* list, unsigned count, Stream stream) noexcept {
    event_.kind = EventKind::array_map;
    event_.stream = value(stream);
    event_.aux2 = count;
    if (list == nullptr || count == 0) return;
    event_.address = value(list->array);
    event_.aux = list->handle;
  }

  void multicast_create(const AllocationHandle* out, const MulticastProperties* about) noexcept {
    const uint64_t bytes = about != nullptr ? about->bytes : kUnknown;
    allocation(EventKind::multicast_create, out, bytes, bytes);
  }
  void multicast_bind(AllocationHandle object, uint64_t bound, size_t bytes) noexcept {
    va_range(EventKind::multicast_bind, object, bytes);
    event_.aux = bound;
  }
  void multicast_unbind(AllocationHandle object, size_t bytes) noexcept {
    va_range(EventKind::multicast_unbind, object, bytes);
  }

  void graph_alloc(const GraphNode* out, Graph graph, const MemAllocNodeParams* about) noexcept;
  void graph_free(const GraphNode* out, Graph graph, DevicePtr address) noexcept;
  // Reports the two types of nodes above.
  void graph_node(const GraphNode* out, Graph graph, const GraphNodeParams* about) noexcept;
  void graph_instantiate(const GraphExec* out, Graph graph) noexcept {
    allocation(EventKind::graph_instantiate, out, kUnknown, kUnknown);
    event_.aux = value(graph);
  }
  void graph_trim(int device) noexcept {
    event_.kind = EventKind::graph_trim;
    event_.device = device;
  }

  // size = total, aux = free, where the program asked for them.
  void memory_info(const size_t* free_bytes, const size_t* total_bytes) noexcept {
    event_.kind = EventKind::memory_info;
    if (succeeded_ && total_bytes != nullptr) event_.size = *total_bytes;
    if (succeeded_ && free_bytes != nullptr) event_.aux = *free_bytes;
  }

  // Answered to the program, of no interest to the recording.
  void nothing() noexcept {}

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
  // Reports the context's end if this was the last reference.
  void primary_release(int device) noexcept;
  void context_create(void* const* out, unsigned flags, int device) noexcept;

 private:
  template <typename T>
  static uint64_t value(T* pointer) noexcept {
    return reinterpret_cast<uintptr_t>(pointer);
  }
  static uint64_t value(uint64_t number) noexcept { return number; }
  static uint64_t key_of(const IpcHandle& handle) noexcept;

  // The event becomes one of `kind` if the stream is capturing; aux = the graph, aux2 = 0.
  void note_capture(EventKind kind, Stream stream) noexcept;

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
