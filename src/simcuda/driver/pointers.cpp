// What is known about an address.
#include "simcuda/driver/driver_state.h"

namespace fragscope::simcuda {

namespace {

struct About {
  bool known = false;
  unsigned memory_type = 0;  // CUmemorytype
  bool managed = false;
  int device = -1;
  CUcontext context = nullptr;
  uint64_t start = 0, bytes = 0, id = 0;
  CUmemoryPool pool = nullptr;
  bool legacy_ipc = false;
};

void about_device(DriverState& state, uint64_t address, About& about) {
  Device* device = device_of_address(state, address);
  if (device == nullptr || !is_live_device_range(state, address, 1)) return;
  about.known = true;
  about.memory_type = CU_MEMORYTYPE_DEVICE;
  about.device = device->ordinal;
  about.context = &device->primary;
  auto block = state.pool_blocks.upper_bound(address);
  if (block != state.pool_blocks.begin()) {
    --block;
    const uint64_t bytes = block->second->live[block->first].bytes;
    if (address - block->first < bytes) {
      about.start = about.id = block->first;
      about.bytes = bytes;
      about.pool = block->second;
      return;
    }
  }
  if (const auto found = device->memory.find(address)) {
    about.start = found->address;
    about.bytes = found->bytes;
    const auto id = state.allocation_ids.find(found->address);
    about.id = id != state.allocation_ids.end() ? id->second.id : found->address;
    about.legacy_ipc = true;
    return;
  }
  if (const auto graph = block_around(state.graph_blocks, address);
      graph != state.graph_blocks.end()) {
    about.start = about.id = graph->first;
    about.bytes = graph->second.bytes;
    return;
  }
  const auto mapping = std::prev(state.mappings.upper_bound(address));
  about.start = about.id = mapping->first;
  about.bytes = mapping->second.bytes;
}

template <typename Blocks>
bool about_block(const Blocks& blocks, uint64_t address, CUmemorytype type, About& about) {
  const auto block = block_around(blocks, address);
  if (block == blocks.end()) return false;
  about.known = true;
  about.memory_type = type;
  about.start = block->first;
  about.bytes = block->second.bytes;
  about.id = block->second.id;
  about.context = block->second.context;
  about.device = block->second.context->device->ordinal;
  return true;
}

About about_address(DriverState& state, uint64_t address) {
  About about;
  if (is_device_address(address)) {
    about_device(state, address, about);
  } else if (about_block(state.managed_blocks, address, CU_MEMORYTYPE_DEVICE, about)) {
    about.managed = true;
  } else {
    about_block(state.host_blocks, address, CU_MEMORYTYPE_HOST, about);
  }
  return about;
}

template <typename T>
CUresult answer(void* out, T value) {
  *static_cast<T*>(out) = value;
  return CUDA_SUCCESS;
}

CUresult get(const About& about, CUpointer_attribute attribute, uint64_t address, void* out) {
  const bool host = about.memory_type == CU_MEMORYTYPE_HOST;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return answer(out, about.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return answer(out, about.memory_type);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return answer<CUdeviceptr>(out, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!host && !about.managed) return CUDA_ERROR_INVALID_VALUE;
      return answer(out, reinterpret_cast<void*>(address));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return answer(out, 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return answer<unsigned long long>(out, about.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return answer<unsigned>(out, about.managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return answer(out, about.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return answer<unsigned>(out, about.legacy_ipc);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return answer<CUdeviceptr>(out, about.start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return answer<size_t>(out, about.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return answer<unsigned>(out, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return answer<unsigned long long>(out, 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return answer<unsigned>(out, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return answer<unsigned>(out, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return answer(out, about.pool);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return answer<size_t>(out, about.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return answer<CUdeviceptr>(out, about.start);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return answer<unsigned long long>(out, about.id);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// cuPointerGetAttributes answers for unknown addresses too: zeros, and -2 for the device.
void get_unknown(CUpointer_attribute attribute, void* out) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      answer(out, -2);
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      answer<unsigned>(out, 0);
      break;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      break;
    default:
      answer<uint64_t>(out, 0);
  }
}

}  // namespace

}  // namespace fragscope::simcuda

using namespace fragscope::simcuda;

extern "C" {

CUresult CUDAAPI cuPointerGetAttribute(void* out, CUpointer_attribute attribute,
                                       CUdeviceptr address) {
  return with_state([&](DriverState& state) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const About about = about_address(state, address);
    return about.known ? get(about, attribute, address, out) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes,
                                        void** out, CUdeviceptr address) {
  return with_state([&](DriverState& state) {
    if (attributes == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const About about = about_address(state, address);
    for (unsigned i = 0; i < count; ++i) {
      if (!about.known || get(about, attributes[i], address, out[i]) != CUDA_SUCCESS) {
        get_unknown(attributes[i], out[i]);
      }
    }
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuPointerSetAttribute(const void* value, CUpointer_attribute,
                                       CUdeviceptr address) {
  return with_state([&](DriverState& state) {
    if (value == nullptr || !about_address(state, address).known) return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
