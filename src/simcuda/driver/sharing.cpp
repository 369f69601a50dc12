// Memory that crosses processes: legacy IPC handles, shareable handles of physical memory and
// pools, memory imported from other APIs. Opened memory is an address range: its bytes were charged
// once, by who made them, and are given back when that process frees them or ends. Contents do not
// cross.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/bytes.h"
#include "simcuda/driver/driver_state.h"

using namespace fragscope;
using namespace fragscope::simcuda;

namespace {

// What the 64 opaque bytes of a handle say, and the first bytes of a shared file descriptor.
struct SharedMemory {
  char magic[8];
  uint32_t pid;
  int32_t card;
  uint64_t address;
  uint64_t bytes;
};
static_assert(sizeof(SharedMemory) <= CU_IPC_HANDLE_SIZE);
constexpr char kMemory[8] = "FSMEM01", kPhysical[8] = "FSPHY01", kPool[8] = "FSPOOL1";
constexpr char kEvent[8] = "FSEVNT1";  // address and bytes: number and generation in the ledger

SharedMemory describe(const char (&magic)[8], const Device& device, uint64_t address,
                      uint64_t bytes) {
  SharedMemory about{};
  std::memcpy(about.magic, magic, sizeof about.magic);
  about.pid = static_cast<uint32_t>(::getpid());
  about.card = device.card;
  about.address = address;
  about.bytes = bytes;
  return about;
}

bool is(const SharedMemory& about, const char (&magic)[8]) {
  return std::memcmp(about.magic, magic, sizeof about.magic) == 0;
}

Device* device_of_card(DriverState& state, int card) {
  for (const auto& device : state.devices) {
    if (device->card == card) return device.get();
  }
  return nullptr;
}

// A descriptor that says what it stands for; -1: none to be had.
int to_descriptor(const SharedMemory& about) {
  const int fd = ::memfd_create("fragscope-sim-shared", MFD_CLOEXEC);
  if (fd >= 0 && ::write(fd, &about, sizeof about) == sizeof about) return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

bool from_descriptor(int fd, SharedMemory& about) {
  return ::pread(fd, &about, sizeof about, 0) == sizeof about;
}

// Address space for memory that exists elsewhere.
CUresult open_range(DriverState& state, Device& device, uint64_t bytes, CUdeviceptr* out) {
  if (bytes > kLargestRequest) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t whole = round_up(bytes, model::kDevicePage);
  const auto address = device.memory.reserve_range(whole);
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  state.mappings[*address] = {whole, 0};
  *out = *address;
  return CUDA_SUCCESS;
}

CUresult open_handle(CUdeviceptr* out, const CUipcMemHandle& handle) {
  return with_context([&](DriverState& state, CUctx_st&) -> CUresult {
    SharedMemory about;
    std::memcpy(&about, &handle, sizeof about);
    if (out == nullptr || !is(about, kMemory)) return CUDA_ERROR_INVALID_VALUE;
    // As documented: not in the process that made it.
    if (about.pid == static_cast<uint32_t>(::getpid())) return CUDA_ERROR_INVALID_CONTEXT;
    Device* const device = device_of_card(state, about.card);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    for (auto& [address, opened] : state.opened) {  // a second time: the same address
      if (opened.owner != about.pid || opened.address_there != about.address) continue;
      ++opened.references;
      *out = address;
      return CUDA_SUCCESS;
    }
    const CUresult result = open_range(state, *device, about.bytes, out);
    if (result == CUDA_SUCCESS) state.opened[*out] = {about.pid, about.address, 1};
    return result;
  });
}

CUresult open_and_note(const char* call, CUdeviceptr* out, const CUipcMemHandle& handle) {
  const CUresult result = open_handle(out, handle);
  write_books(call, result == CUDA_SUCCESS ? *out : 0, 0, result);
  return result;
}

CUresult export_event(DriverState& state, CUevent event, CUipcEventHandle* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool ours = state.events.count(event) != 0 && !event->opened &&
                    (event->flags & CU_EVENT_INTERPROCESS) != 0;
  if (!ours) return CUDA_ERROR_INVALID_HANDLE;
  if (!event->shared) {
    event->shared = state.ledger->share_event();
    if (!event->shared) return CUDA_ERROR_OUT_OF_MEMORY;
    state.ledger->set_event(*event->shared, event->due_ns);
  }
  const SharedMemory about =
      describe(kEvent, *event->context->device, static_cast<uint64_t>(event->shared->number),
               event->shared->generation);
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &about, sizeof about);
  return CUDA_SUCCESS;
}

CUresult import_event(DriverState& state, CUctx_st& context, const CUipcEventHandle& handle,
                      CUevent* out) {
  SharedMemory about;
  std::memcpy(&about, &handle, sizeof about);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is(about, kEvent)) return CUDA_ERROR_INVALID_HANDLE;
  if (about.pid == static_cast<uint32_t>(::getpid())) return CUDA_ERROR_INVALID_CONTEXT;
  auto event = std::make_unique<CUevent_st>();
  event->context = &context;
  event->flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  event->recorded = event->opened = true;
  event->shared =
      Ledger::SharedEvent{static_cast<int>(about.address), static_cast<uint32_t>(about.bytes)};
  *out = event.get();
  state.events.emplace(*out, std::move(event));
  return CUDA_SUCCESS;
}

}  // namespace

namespace fragscope::simcuda {

void close_range(DriverState& state, uint64_t address) {
  state.mappings.erase(address);
  device_of_address(state, address)->memory.release_range(address);
}

}  // namespace fragscope::simcuda

extern "C" {

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  const CUresult result = with_context([&](DriverState& state, CUctx_st&) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Device* const device = device_of_address(state, address);
    const auto found = device != nullptr ? device->memory.find(address) : std::nullopt;
    if (!found || state.allocation_ids.count(found->address) == 0) return CUDA_ERROR_INVALID_VALUE;
    const SharedMemory about = describe(kMemory, *device, found->address, found->bytes);
    std::memset(out, 0, sizeof *out);
    std::memcpy(out, &about, sizeof about);
    return CUDA_SUCCESS;
  });
  write_books("cuIpcGetMemHandle", address, 0, result);
  return result;
}

CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned int) {
  return open_and_note("cuIpcOpenMemHandle_v2", out, handle);
}
CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned int) {
  return open_and_note("cuIpcOpenMemHandle", out, handle);
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address) {
  const CUresult result = with_context([&](DriverState& state, CUctx_st&) {
    const auto found = state.opened.find(address);
    if (found == state.opened.end()) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.references > 0) return CUDA_SUCCESS;
    state.opened.erase(found);
    close_range(state, address);
    return CUDA_SUCCESS;
  });
  write_books("cuIpcCloseMemHandle", address, 0, result);
  return result;
}

CUresult CUDAAPI cuIpcGetEventHandle(CUipcEventHandle* out, CUevent event) {
  return with_state([&](DriverState& state) { return export_event(state, event, out); });
}
CUresult CUDAAPI cuIpcOpenEventHandle(CUevent* out, CUipcEventHandle handle) {
  return with_context([&](DriverState& state, CUctx_st& context) {
    return import_event(state, context, handle, out);
  });
}

CUresult CUDAAPI cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type, unsigned long long) {
  const CUresult result = with_state([&](DriverState& state) {
    const auto physical = state.physical.find(handle);
    if (out == nullptr || physical == state.physical.end()) return CUDA_ERROR_INVALID_VALUE;
    const auto allowed = physical->second.properties.requestedHandleTypes;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || (allowed & type) == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const int fd = to_descriptor(
        describe(kPhysical, *physical->second.device, handle, physical->second.bytes));
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    *static_cast<int*>(out) = fd;
    return CUDA_SUCCESS;
  });
  write_books("cuMemExportToShareableHandle", handle, 0, result);
  return result;
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* shared,
                                                CUmemAllocationHandleType type) {
  const CUresult result = with_state([&](DriverState& state) {
    SharedMemory about;
    const int fd = static_cast<int>(reinterpret_cast<intptr_t>(shared));
    if (out == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !from_descriptor(fd, about) || !is(about, kPhysical)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    Device* const device = device_of_card(state, about.card);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device->ordinal}};
    *out = state.next_id++;
    state.physical[*out] = {device, about.bytes, 1, 0, properties, true};
    return CUDA_SUCCESS;
  });
  write_books("cuMemImportFromShareableHandle", result == CUDA_SUCCESS ? *out : 0, 0, result);
  return result;
}

CUresult CUDAAPI cuMemPoolExportToShareableHandle(void* out, CUmemoryPool handle,
                                                  CUmemAllocationHandleType type,
                                                  unsigned long long) {
  const CUresult result = with_state([&](DriverState& state) {
    const auto found = state.pools.find(handle);
    if (out == nullptr || found == state.pools.end()) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    const int fd = to_descriptor(describe(kPool, *handle->device, 0, 0));
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    *static_cast<int*>(out) = fd;
    return CUDA_SUCCESS;
  });
  write_books("cuMemPoolExportToShareableHandle", reinterpret_cast<uint64_t>(handle), 0, result);
  return result;
}

CUresult CUDAAPI cuMemPoolImportFromShareableHandle(CUmemoryPool* out, void* shared,
                                                    CUmemAllocationHandleType type,
                                                    unsigned long long) {
  const CUresult result = with_state([&](DriverState& state) {
    SharedMemory about;
    const int fd = static_cast<int>(reinterpret_cast<intptr_t>(shared));
    if (out == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !from_descriptor(fd, about) || !is(about, kPool)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    Device* const device = device_of_card(state, about.card);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    auto pool = std::make_unique<CUmemPoolHandle_st>();
    pool->device = device;
    pool->imported = true;
    *out = pool.get();
    state.pools.emplace(*out, std::move(pool));
    return CUDA_SUCCESS;
  });
  write_books("cuMemPoolImportFromShareableHandle",
              result == CUDA_SUCCESS ? reinterpret_cast<uint64_t>(*out) : 0, 0, result);
  return result;
}

CUresult CUDAAPI cuMemPoolExportPointer(CUmemPoolPtrExportData* out, CUdeviceptr address) {
  const CUresult result = with_state([&](DriverState& state) {
    const auto owner = state.pool_blocks.find(address);
    if (out == nullptr || owner == state.pool_blocks.end()) return CUDA_ERROR_INVALID_VALUE;
    const SharedMemory about =
        describe(kMemory, *owner->second->device, address, owner->second->live.at(address).bytes);
    std::memset(out, 0, sizeof *out);
    std::memcpy(out, &about, sizeof about);
    return CUDA_SUCCESS;
  });
  write_books("cuMemPoolExportPointer", address, 0, result);
  return result;
}

CUresult CUDAAPI cuMemPoolImportPointer(CUdeviceptr* out, CUmemoryPool handle,
                                        CUmemPoolPtrExportData* shared) {
  const CUresult result = with_state([&](DriverState& state) {
    SharedMemory about;
    const auto pool = state.pools.find(handle);
    if (out == nullptr || shared == nullptr || pool == state.pools.end() || !handle->imported) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::memcpy(&about, shared, sizeof about);
    if (!is(about, kMemory)) return CUDA_ERROR_INVALID_VALUE;
    const CUresult opened = open_range(state, *handle->device, about.bytes, out);
    if (opened == CUDA_SUCCESS) state.lent_ranges.insert(*out);
    return opened;
  });
  write_books("cuMemPoolImportPointer", result == CUDA_SUCCESS ? *out : 0, 0, result);
  return result;
}

CUresult CUDAAPI cuImportExternalMemory(CUexternalMemory* out,
                                        const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* about) {
  const CUresult result = with_context([&](DriverState& state, CUctx_st& context) {
    if (out == nullptr || about == nullptr || about->size == 0) return CUDA_ERROR_INVALID_VALUE;
    if (about->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_NOT_SUPPORTED;
    if (about->handle.fd < 0) return CUDA_ERROR_INVALID_VALUE;
    auto memory = std::make_unique<CUextMemory_st>();
    memory->device = context.device;
    memory->bytes = about->size;
    *out = memory.get();
    state.external_memory.emplace(*out, std::move(memory));
    return CUDA_SUCCESS;
  });
  write_books("cuImportExternalMemory",
              result == CUDA_SUCCESS ? reinterpret_cast<uint64_t>(*out) : 0,
              about != nullptr ? about->size : 0, result);
  return result;
}

CUresult CUDAAPI cuExternalMemoryGetMappedBuffer(CUdeviceptr* out, CUexternalMemory handle,
                                                 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* about) {
  const CUresult result = with_state([&](DriverState& state) {
    const auto found = state.external_memory.find(handle);
    if (found == state.external_memory.end()) return CUDA_ERROR_INVALID_HANDLE;
    if (out == nullptr || about == nullptr || about->size == 0 || about->offset > handle->bytes ||
        about->size > handle->bytes - about->offset) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult opened = open_range(state, *handle->device, about->size, out);
    if (opened == CUDA_SUCCESS) state.lent_ranges.insert(*out);
    return opened;
  });
  write_books("cuExternalMemoryGetMappedBuffer", result == CUDA_SUCCESS ? *out : 0,
              about != nullptr ? about->size : 0, result);
  return result;
}

CUresult CUDAAPI cuDestroyExternalMemory(CUexternalMemory handle) {
  const CUresult result = with_state([&](DriverState& state) {
    return state.external_memory.erase(handle) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
  write_books("cuDestroyExternalMemory", reinterpret_cast<uint64_t>(handle), 0, result);
  return result;
}

}  // extern "C"
