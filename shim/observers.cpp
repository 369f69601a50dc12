#include "shim/observers.h"

#include <algorithm>

#include "shim/recorder.h"

namespace fragscope::shim {
namespace {

// CUarray_format. The packed ones name all channels at once; of others the size is not known here.
uint64_t texel_bytes(int format, unsigned channels) {
  switch (format) {
    case 0x01:
    case 0x08:
      return channels;
    case 0x02:
    case 0x09:
    case 0x10:
      return 2ull * channels;
    case 0x03:
    case 0x0a:
    case 0x20:
      return 4ull * channels;
    case 0xc0:
    case 0xc6:
      return 1;
    case 0xc1:
    case 0xc3:
    case 0xc7:
    case 0xc9:
      return 2;
    case 0x50:
    case 0xc2:
    case 0xc4:
    case 0xc8:
    case 0xca:
      return 4;
    case 0xc5:
    case 0xcb:
      return 8;
    default:
      return kUnknown;
  }
}

struct Shape {
  Extent extent;
  unsigned levels;
  unsigned flags;
};

// Bytes of all texels of all levels; layers do not shrink from level to level. Arguments are the
// host's: they may be anything.
uint64_t array_bytes(uint64_t texel, const Shape& shape) {
  constexpr unsigned kLayered = 1, kMostLevels = 32;
  if (texel == kUnknown || texel == 0) return kUnknown;
  uint64_t total = 0;
  for (unsigned level = 0; level < std::min(shape.levels, kMostLevels); ++level) {
    const auto side = [level](size_t full) { return std::max<uint64_t>(full >> level, 1); };
    const bool layered = (shape.flags & kLayered) != 0;
    const uint64_t depth =
        layered ? std::max<uint64_t>(shape.extent.depth, 1) : side(shape.extent.depth);
    uint64_t bytes = texel;
    if (__builtin_mul_overflow(bytes, side(shape.extent.width), &bytes) ||
        __builtin_mul_overflow(bytes, side(shape.extent.height), &bytes) ||
        __builtin_mul_overflow(bytes, depth, &bytes) ||
        __builtin_add_overflow(total, bytes, &total)) {
      return kUnknown;
    }
  }
  return total;
}

}  // namespace

void Observer::array_alloc(const Array* out, const ChannelDesc* texel, const Extent& extent,
                           unsigned levels, unsigned flags) noexcept {
  const int bits = texel != nullptr ? texel->x + texel->y + texel->z + texel->w : 0;
  const uint64_t bytes = bits > 0 ? static_cast<uint64_t>(bits) / 8 : kUnknown;
  allocation(EventKind::array_alloc, out, kUnknown, array_bytes(bytes, {extent, levels, flags}));
  event_.aux2 = flags;
}

void Observer::array_alloc(const Array* out, const ArrayDesc* about) noexcept {
  allocation(EventKind::array_alloc, out, kUnknown, kUnknown);
  event_.aux2 = 0;
  if (about == nullptr) return;
  event_.requested = array_bytes(texel_bytes(about->format, about->channels),
                                 {{about->width, about->height, 0}, 1, 0});
}

void Observer::array_alloc(const Array* out, const Array3dDesc* about, unsigned levels) noexcept {
  allocation(EventKind::array_alloc, out, kUnknown, kUnknown);
  if (about == nullptr) return;
  event_.aux2 = about->flags;
  event_.requested =
      array_bytes(texel_bytes(about->format, about->channels),
                  {{about->width, about->height, about->depth}, levels, about->flags});
}

void Observer::pool_create(const MemPool* out, const PoolProperties* properties) noexcept {
  allocation(EventKind::pool_create, out, kUnknown, kUnknown);
  if (properties == nullptr) return;
  event_.size = properties->max_bytes;
  if (properties->location_type == kLocationTypeDevice) event_.device = properties->location_id;
}

void Observer::pool_set(MemPool pool, int attribute, const void* setting) noexcept {
  release(EventKind::pool_set, value(pool));
  event_.aux = static_cast<uint64_t>(attribute);
  if (setting == nullptr || !succeeded_) return;
  event_.aux2 = attribute < kFirstWidePoolAttribute
                    ? static_cast<uint64_t>(*static_cast<const int*>(setting))
                    : *static_cast<const uint64_t*>(setting);
}

// FNV-1a.
uint64_t Observer::key_of(const IpcHandle& handle) noexcept {
  uint64_t key = 0xcbf29ce484222325ull;
  for (const char byte : handle.bytes) {
    key = (key ^ static_cast<unsigned char>(byte)) * 0x100000001b3ull;
  }
  return key;
}

void Observer::note_capture(EventKind kind, Stream stream) noexcept {
  const void* const graph = capturing_graph(stream);
  if (graph == nullptr) return;
  event_.kind = kind;
  event_.aux = value(graph);
  event_.aux2 = 0;
}

void Observer::graph_alloc(const GraphNode* out, Graph graph,
                           const MemAllocNodeParams* about) noexcept {
  const uint64_t bytes = about != nullptr ? about->bytes : kUnknown;
  allocation(EventKind::graph_alloc, about != nullptr ? &about->address : nullptr, bytes, bytes);
  event_.aux = value(graph);
  if (succeeded_ && out != nullptr) event_.aux2 = value(*out);
  if (about != nullptr && about->pool.location_type == kLocationTypeDevice) {
    event_.device = about->pool.location_id;
  }
}

void Observer::graph_free(const GraphNode* out, Graph graph, DevicePtr address) noexcept {
  release(EventKind::graph_free, address);
  event_.aux = value(graph);
  if (succeeded_ && out != nullptr) event_.aux2 = value(*out);
}

void Observer::graph_node(const GraphNode* out, Graph graph,
                          const GraphNodeParams* about) noexcept {
  if (about == nullptr) return;
  if (about->type == kNodeTypeAlloc) graph_alloc(out, graph, &about->alloc);
  if (about->type == kNodeTypeFree) graph_free(out, graph, about->free);
}

void Observer::context_destroy_current() noexcept {
  event_.kind = EventKind::context_destroy;
  event_.device = current_device();
}

void Observer::context_destroy(void* context) noexcept {
  release(EventKind::context_destroy, value(context));
  if (current_context() == context) event_.device = current_device();
}

void Observer::primary_release(int device) noexcept {
  if (succeeded_ && is_primary_active(device)) return;
  context_destroy_device(device);
}

void Observer::context_create(void* const* out, unsigned flags, int device) noexcept {
  allocation(EventKind::context_create, out, kUnknown, kUnknown);
  event_.device = device;
  event_.aux2 = flags;
  if (succeeded_) note_several_contexts();
}

}  // namespace fragscope::shim
