#include "tools/demo/mapped_ranges.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "model/device_memory.h"

namespace fragscope::demo {

struct DriverFunctions {
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
};

namespace {

template <typename Function>
bool find(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(::dlsym(library, name));
  return out != nullptr;
}

bool find_all(void* library, DriverFunctions& out) {
  return library != nullptr && find(library, "cuMemAddressReserve", out.reserve) &&
         find(library, "cuMemAddressFree", out.free) && find(library, "cuMemCreate", out.create) &&
         find(library, "cuMemRelease", out.release) && find(library, "cuMemMap", out.map) &&
         find(library, "cuMemUnmap", out.unmap) && find(library, "cuMemSetAccess", out.set_access);
}

// nullptr: the driver has none of them.
const DriverFunctions* find_driver() {
  static DriverFunctions functions;
  static const bool found = find_all(::dlopen("libcuda.so.1", RTLD_LAZY), functions);
  return found ? &functions : nullptr;
}

CUmemLocation location() { return {CU_MEM_LOCATION_TYPE_DEVICE, {0}}; }

}  // namespace

std::optional<uint64_t> MappedRanges::reserve(uint64_t bytes) {
  driver_ = find_driver();
  if (driver_ == nullptr) return std::nullopt;
  cudaFree(nullptr);  // makes the context
  CUdeviceptr address = 0;
  if (driver_->reserve(&address, bytes, 0, 0, 0) != CUDA_SUCCESS) return std::nullopt;
  return address;
}

bool MappedRanges::map_page(uint64_t address) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = location();
  CUmemGenericAllocationHandle handle = 0;
  if (driver_->create(&handle, model::kDevicePage, &properties, 0) != CUDA_SUCCESS) return false;
  if (driver_->map(address, model::kDevicePage, 0, handle, 0) != CUDA_SUCCESS) {
    driver_->release(handle);
    return false;
  }
  handles_[address] = handle;
  return true;
}

bool MappedRanges::map(uint64_t address, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes; done += model::kDevicePage) {
    if (map_page(address + done)) continue;
    unmap(address, done);
    return false;
  }
  CUmemAccessDesc access{};
  access.location = location();
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (driver_->set_access(address, bytes, &access, 1) == CUDA_SUCCESS) return true;
  unmap(address, bytes);
  return false;
}

void MappedRanges::unmap(uint64_t address, uint64_t bytes) {
  const auto first = handles_.lower_bound(address);
  const auto last = handles_.lower_bound(address + bytes);
  for (auto page = first; page != last; ++page) {
    driver_->unmap(page->first, model::kDevicePage);
    driver_->release(page->second);
  }
  handles_.erase(first, last);
}

void MappedRanges::release(uint64_t address, uint64_t bytes) { driver_->free(address, bytes); }

}  // namespace fragscope::demo
