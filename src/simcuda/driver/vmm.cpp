// Virtual memory management. Capacity is charged when physical memory is made, and comes back when
// it is both released and unmapped. Not refused during capture: PyTorch does not guard cuMemCreate.
#include <algorithm>

#include "base/bytes.h"
#include "simcuda/driver/driver_state.h"

using namespace fragscope;
using namespace fragscope::simcuda;

namespace {

bool is_page_multiple(uint64_t value) { return value % model::kDevicePage == 0; }

void drop_if_unused(DriverState& state, std::map<uint64_t, Physical>::iterator physical) {
  if (physical->second.references != 0 || physical->second.mappings != 0) return;
  if (!physical->second.imported) physical->second.device->book.refund(physical->second.bytes);
  state.physical.erase(physical);
}

bool is_free_range(DriverState& state, uint64_t address, uint64_t bytes) {
  auto range = state.ranges.upper_bound(address);
  if (range == state.ranges.begin()) return false;
  --range;
  if (address + bytes > range->first + range->second) return false;
  auto next = state.mappings.upper_bound(address);
  if (next != state.mappings.end() && next->first < address + bytes) return false;
  if (next == state.mappings.begin()) return true;
  --next;
  return next->first + next->second.bytes <= address;
}

CUresult create(CUmemGenericAllocationHandle* handle, size_t bytes,
                const CUmemAllocationProp* properties) {
  return with_state([&](DriverState& state) {
    if (handle == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (bytes == 0 || !is_page_multiple(bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    constexpr int kUnsupportedHandles = ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if ((properties->requestedHandleTypes & kUnsupportedHandles) != 0) {
      return CUDA_ERROR_NOT_SUPPORTED;  // fabric, Windows
    }
    Device* device = device_at(state, properties->location.id);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (!device->book.charge(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = state.next_id++;
    state.physical[*handle] = {device, bytes, 1, 0, *properties};
    return CUDA_SUCCESS;
  });
}

CUresult map(CUdeviceptr address, size_t bytes, size_t offset,
             CUmemGenericAllocationHandle handle) {
  return with_state([&](DriverState& state) {
    const auto physical = state.physical.find(handle);
    if (physical == state.physical.end() || offset != 0 || bytes == 0 ||
        bytes > physical->second.bytes || !is_page_multiple(bytes) || !is_page_multiple(address) ||
        !is_free_range(state, address, bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    ++physical->second.mappings;
    state.mappings[address] = {bytes, handle};
    physical->second.device->overlay.erase(address, bytes);
    return CUDA_SUCCESS;
  });
}

// The range must consist of whole mappings.
CUresult unmap(CUdeviceptr address, size_t bytes) {
  return with_state([&](DriverState& state) {
    uint64_t at = address;
    for (auto found = state.mappings.find(at); at < address + bytes; ++found) {
      if (found == state.mappings.end() || found->first != at) return CUDA_ERROR_INVALID_VALUE;
      at += found->second.bytes;
    }
    if (at != address + bytes || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    for (auto found = state.mappings.find(address);
         found != state.mappings.end() && found->first < address + bytes;) {
      const auto physical = state.physical.find(found->second.handle);
      found = state.mappings.erase(found);
      if (physical == state.physical.end()) continue;
      --physical->second.mappings;
      drop_if_unused(state, physical);
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr,
                                     unsigned long long flags) {
  const CUresult result = with_state([&](DriverState& state) {
    const bool power_of_two = (alignment & (alignment - 1)) == 0;  // 0: any
    if (out == nullptr || bytes == 0 || !is_page_multiple(bytes) || !power_of_two || flags != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const CUcontext context = current_context();
    Device& device = context != nullptr ? *context->device : *state.devices.front();
    const auto address =
        device.memory.reserve_range(bytes, std::max<uint64_t>(alignment, model::kDevicePage));
    if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
    state.ranges[*address] = bytes;
    *out = *address;
    return CUDA_SUCCESS;
  });
  write_books("cuMemAddressReserve", result == CUDA_SUCCESS ? *out : 0, bytes, result);
  return result;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  const CUresult result = with_state([&](DriverState& state) {
    const auto range = state.ranges.find(address);
    if (range == state.ranges.end() || range->second != bytes ||
        !is_free_range(state, address, bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    state.ranges.erase(range);
    device_of_address(state, address)->memory.release_range(address);
    return CUDA_SUCCESS;
  });
  write_books("cuMemAddressFree", address, bytes, result);
  return result;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                             const CUmemAllocationProp* properties, unsigned long long) {
  const CUresult result = create(handle, bytes, properties);
  write_books("cuMemCreate", result == CUDA_SUCCESS ? *handle : 0, bytes, result);
  return result;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  const CUresult result = with_state([&](DriverState& state) {
    const auto physical = state.physical.find(handle);
    if (physical == state.physical.end() || physical->second.references == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    --physical->second.references;
    drop_if_unused(state, physical);
    return CUDA_SUCCESS;
  });
  write_books("cuMemRelease", handle, 0, result);
  return result;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long) {
  const CUresult result = map(address, bytes, offset, handle);
  write_books("cuMemMap", address, bytes, result);
  return result;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes) {
  const CUresult result = unmap(address, bytes);
  write_books("cuMemUnmap", address, bytes, result);
  return result;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                                size_t count) {
  const CUresult result = with_state([&](DriverState& state) {
    if (access == nullptr || count == 0 || !is_live_device_range(state, address, bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
  write_books("cuMemSetAccess", address, bytes, result);
  return result;
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long* flags, const CUmemLocation*,
                                CUdeviceptr address) {
  return with_state([&](DriverState& state) {
    if (flags == nullptr || !is_live_device_range(state, address, 1)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* properties,
                                               CUmemAllocationGranularity_flags) {
  return with_state([&](DriverState&) {
    if (bytes == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *bytes = model::kDevicePage;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                        CUmemGenericAllocationHandle handle) {
  return with_state([&](DriverState& state) {
    const auto physical = state.physical.find(handle);
    if (properties == nullptr || physical == state.physical.end()) return CUDA_ERROR_INVALID_VALUE;
    *properties = physical->second.properties;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  const CUresult result = with_state([&](DriverState& state) {
    auto mapping = state.mappings.upper_bound(reinterpret_cast<uint64_t>(address));
    if (handle == nullptr || mapping == state.mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
    --mapping;
    const auto physical = state.physical.find(mapping->second.handle);
    const uint64_t into = reinterpret_cast<uint64_t>(address) - mapping->first;
    if (into >= mapping->second.bytes || physical == state.physical.end()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    ++physical->second.references;
    *handle = physical->first;
    return CUDA_SUCCESS;
  });
  write_books("cuMemRetainAllocationHandle", result == CUDA_SUCCESS ? *handle : 0, 0, result);
  return result;
}

}  // extern "C"
