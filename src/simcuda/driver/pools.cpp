// Stream-ordered memory. Assumed, as the vendor documents none of it: pools grow in steps of 32
// MiB, sizes are rounded to 512 bytes, the smallest free block that fits is taken (lowest address
// first), blocks merge within one step only, whole free steps above the release threshold go back
// when something synchronises.
#include <algorithm>

#include "base/bytes.h"
#include "base/free_ranges.h"
#include "simcuda/driver/driver_state.h"

using namespace fragscope;

namespace fragscope::simcuda {

namespace {

constexpr uint64_t kPoolStep = 32 * kMiB;
constexpr uint64_t kPoolAlignment = 512;

bool take_free_block(CUmemPoolHandle_st& pool, uint64_t bytes, uint64_t& address) {
  uint64_t best_chunk = 0, best_bytes = UINT64_MAX;
  for (const auto& [chunk, blocks] : pool.free_blocks) {
    for (const auto& [at, size] : blocks) {
      if (size < bytes || size >= best_bytes) continue;
      best_chunk = chunk;
      best_bytes = size;
      address = at;
    }
  }
  if (best_bytes == UINT64_MAX) return false;
  auto& blocks = pool.free_blocks[best_chunk];
  blocks.erase(address);
  if (best_bytes > bytes) blocks.emplace(address + bytes, best_bytes - bytes);
  pool.live[address] = {best_chunk, bytes};
  return true;
}

bool grow(CUmemPoolHandle_st& pool, uint64_t bytes) {
  if (pool.max_bytes != 0 && pool.reserved + bytes > pool.max_bytes) return false;
  const auto chunk = pool.device->memory.allocate(bytes);
  if (!chunk) return false;
  pool.chunks[*chunk] = bytes;
  pool.free_blocks[*chunk].emplace(*chunk, bytes);
  pool.reserved += bytes;
  pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
  return true;
}

}  // namespace

CUresult pool_allocate(DriverState& state, CUmemoryPool pool, size_t bytes, CUdeviceptr* out) {
  if (bytes > kLargestRequest) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t rounded = round_up(bytes, kPoolAlignment);
  uint64_t address = 0;
  bool found = take_free_block(*pool, rounded, address);
  if (!found) {
    const uint64_t step = round_up(rounded, kPoolStep);
    bool grown = grow(*pool, step);
    if (!grown) {
      pool_trim(state, pool, 0);
      grown = grow(*pool, step) || grow(*pool, round_up(rounded, model::kDevicePage));
    }
    found = grown && take_free_block(*pool, rounded, address);
  }
  if (!found) return CUDA_ERROR_OUT_OF_MEMORY;
  pool->used += rounded;
  pool->used_high = std::max(pool->used_high, pool->used);
  state.pool_blocks[address] = pool;
  pool->device->overlay.erase(address, rounded);
  *out = address;
  return CUDA_SUCCESS;
}

bool pool_free(DriverState& state, CUdeviceptr address, CUresult& result) {
  const auto owner = state.pool_blocks.find(address);
  if (owner == state.pool_blocks.end()) return false;
  CUmemPoolHandle_st& pool = *owner->second;
  const auto block = pool.live.at(address);
  pool.live.erase(address);
  pool.used -= block.bytes;
  give_back(pool.free_blocks[block.chunk], address, block.bytes);
  state.pool_blocks.erase(owner);
  if (pool.ended && pool.live.empty()) pool_trim(state, &pool, 0);
  result = CUDA_SUCCESS;
  return true;
}

void pool_trim(DriverState&, CUmemoryPool pool, uint64_t keep_bytes) {
  for (auto chunk = pool->chunks.begin(); chunk != pool->chunks.end();) {
    const auto [address, bytes] = *chunk;
    const auto& blocks = pool->free_blocks[address];
    const bool unused = blocks.size() == 1 && blocks.begin()->second == bytes;
    if (!unused || pool->reserved < keep_bytes + bytes) {
      ++chunk;
      continue;
    }
    pool->device->memory.release(address);
    pool->reserved -= bytes;
    pool->free_blocks.erase(address);
    chunk = pool->chunks.erase(chunk);
  }
}

void trim_to_threshold(DriverState& state, Device& device) {
  if (device.default_pool.reserved > device.default_pool.release_threshold) {
    pool_trim(state, &device.default_pool, device.default_pool.release_threshold);
  }
  for (const auto& [handle, pool] : state.pools) {
    if (pool->device == &device && pool->reserved > pool->release_threshold) {
      pool_trim(state, handle, pool->release_threshold);
    }
  }
}

namespace {

CUmemoryPool find_pool(DriverState& state, CUmemoryPool handle) {
  if (state.pools.count(handle) != 0) return handle;
  for (const auto& device : state.devices) {
    if (handle == &device->default_pool) return handle;
  }
  return nullptr;
}

CUresult allocate_async(const char* call, CUdeviceptr* out, size_t bytes, CUmemoryPool handle,
                        CUstream stream_handle) {
  bool captured = false;
  const CUresult result = with_context([&](DriverState& state, CUctx_st& context) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUstream stream = find_stream(state, &context, stream_handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const CUmemoryPool pool =
        handle == nullptr ? context.device->current_pool : find_pool(state, handle);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (bytes == 0) {
      *out = 0;
      return CUDA_SUCCESS;
    }
    if (bytes > kLargestRequest) return CUDA_ERROR_OUT_OF_MEMORY;
    CUgraphNode node = nullptr;
    if (capture_node(state, stream, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &node)) {
      captured = true;
      const CUresult made = make_graph_block(state, *pool->device, bytes, out);
      if (made == CUDA_SUCCESS) node->address = *out;
      return made;
    }
    return pool->imported ? CUDA_ERROR_INVALID_VALUE : pool_allocate(state, pool, bytes, out);
  });
  write_books(captured ? "cuMemAllocAsync:captured" : call, result == CUDA_SUCCESS ? *out : 0,
              bytes, result);
  return result;
}

template <typename T>
T& as(void* value) {
  return *static_cast<T*>(value);
}

CUresult get_pool_attribute(CUmemPoolHandle_st& pool, CUmemPool_attribute attribute, void* value) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      as<int>(value) = pool.reuse_follow_events;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      as<int>(value) = pool.reuse_opportunistic;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      as<int>(value) = pool.reuse_internal;
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      as<cuuint64_t>(value) = pool.release_threshold;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      as<cuuint64_t>(value) = pool.reserved;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      as<cuuint64_t>(value) = pool.reserved_high;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      as<cuuint64_t>(value) = pool.used;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      as<cuuint64_t>(value) = pool.used_high;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult set_pool_attribute(CUmemPoolHandle_st& pool, CUmemPool_attribute attribute, void* value) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      pool.reuse_follow_events = as<int>(value);
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      pool.reuse_opportunistic = as<int>(value);
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      pool.reuse_internal = as<int>(value);
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool.release_threshold = as<cuuint64_t>(value);
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:  // only a reset to 0 is allowed
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (as<cuuint64_t>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) pool.used_high = pool.used;
      if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) pool.reserved_high = pool.reserved;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

template <typename Body>
CUresult with_pool(CUmemoryPool handle, Body body) {
  return with_state([&](DriverState& state) -> CUresult {
    const CUmemoryPool pool = find_pool(state, handle);
    return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : body(state, *pool);
  });
}

}  // namespace

}  // namespace fragscope::simcuda

using namespace fragscope::simcuda;

extern "C" {

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return allocate_async("cuMemAllocAsync", out, bytes, nullptr, stream);
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                                         CUstream stream) {
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return allocate_async("cuMemAllocFromPoolAsync", out, bytes, pool, stream);
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream stream_handle) {
  bool captured = false;
  const CUresult result = with_context([&](DriverState& state, CUctx_st& context) -> CUresult {
    if (address == 0) return CUDA_SUCCESS;
    const CUstream stream = find_stream(state, &context, stream_handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    CUgraphNode node = nullptr;
    if (state.graph_blocks.count(address) != 0 &&
        capture_node(state, stream, CU_GRAPH_NODE_TYPE_MEM_FREE, &node)) {
      node->address = address;
      captured = true;
      return CUDA_SUCCESS;
    }
    CUresult freed = CUDA_ERROR_INVALID_VALUE;
    if (free_graph_block(state, address, freed)) return freed;
    if (state.lent_ranges.erase(address) != 0) {
      close_range(state, address);
      return CUDA_SUCCESS;
    }
    if (!pool_free(state, address, freed)) {
      const auto plain = state.allocation_ids.find(address);
      if (plain == state.allocation_ids.end()) return CUDA_ERROR_INVALID_VALUE;
      state.allocation_ids.erase(plain);
      device_of_address(state, address)->memory.release(address);
    }
    capture_node(state, stream, CU_GRAPH_NODE_TYPE_MEM_FREE);
    return CUDA_SUCCESS;
  });
  write_books(captured ? "cuMemFreeAsync:captured" : "cuMemFreeAsync", address, 0, result);
  return result;
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  return with_state([&](DriverState& state) {
    Device* device = device_at(state, ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pool = &device->default_pool;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  return with_state([&](DriverState& state) {
    Device* device = device_at(state, ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pool = device->current_pool;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
  return with_pool(handle, [&](DriverState& state, CUmemPoolHandle_st& pool) {
    Device* device = device_at(state, ordinal);
    if (device == nullptr || pool.device != device) return CUDA_ERROR_INVALID_DEVICE;
    device->current_pool = handle;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* properties) {
  const CUresult result = with_state([&](DriverState& state) {
    if (out == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    Device* device = device_at(state, properties->location.id);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    auto pool = std::make_unique<CUmemPoolHandle_st>();
    pool->device = device;
    pool->max_bytes = properties->maxSize;
    *out = pool.get();
    state.pools.emplace(*out, std::move(pool));
    return CUDA_SUCCESS;
  });
  write_books("cuMemPoolCreate", result == CUDA_SUCCESS ? reinterpret_cast<uint64_t>(*out) : 0, 0,
              result);
  return result;
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool handle) {
  const CUresult result = with_state([&](DriverState& state) {
    const auto found = state.pools.find(handle);
    if (found == state.pools.end()) return CUDA_ERROR_INVALID_VALUE;
    Device& device = *handle->device;
    if (device.current_pool == handle) device.current_pool = &device.default_pool;
    pool_trim(state, handle, 0);
    handle->ended = true;  // as documented, live blocks stay until they are freed
    if (!handle->live.empty()) state.ended_pools.push_back(std::move(found->second));
    state.pools.erase(found);
    return CUDA_SUCCESS;
  });
  write_books("cuMemPoolDestroy", reinterpret_cast<uint64_t>(handle), 0, result);
  return result;
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes) {
  const CUresult result = with_pool(handle, [&](DriverState& state, CUmemPoolHandle_st& pool) {
    pool_trim(state, &pool, keep_bytes);
    return CUDA_SUCCESS;
  });
  write_books("cuMemPoolTrimTo", reinterpret_cast<uint64_t>(handle), keep_bytes, result);
  return result;
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                       void* value) {
  return with_pool(handle, [&](DriverState&, CUmemPoolHandle_st& pool) {
    return value == nullptr ? CUDA_ERROR_INVALID_VALUE : get_pool_attribute(pool, attribute, value);
  });
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                       void* value) {
  const CUresult result = with_pool(handle, [&](DriverState&, CUmemPoolHandle_st& pool) {
    return value == nullptr ? CUDA_ERROR_INVALID_VALUE : set_pool_attribute(pool, attribute, value);
  });
  write_books("cuMemPoolSetAttribute", reinterpret_cast<uint64_t>(handle), 0, result);
  return result;
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access,
                                    size_t count) {
  return with_pool(handle, [&](DriverState&, CUmemPoolHandle_st&) {
    return access == nullptr && count != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation*) {
  return with_pool(handle, [&](DriverState&, CUmemPoolHandle_st&) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute,
                                              void* value) {
  return with_state([&](DriverState& state) {
    Device* device = device_at(state, ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (value == nullptr || attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto& pool = device->graph_pool;
    const cuuint64_t values[] = {pool.used, pool.used_high, pool.reserved, pool.reserved_high};
    as<cuuint64_t>(value) = values[attribute];
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute,
                                              void* value) {
  return with_state([&](DriverState& state) {
    Device* device = device_at(state, ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto& pool = device->graph_pool;
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) pool.used_high = pool.used;
    if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) pool.reserved_high = pool.reserved;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
