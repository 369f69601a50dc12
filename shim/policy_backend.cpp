#include "shim/policy_backend.h"

#include "shim/elf_lookup.h"
#include "shim/recorder.h"

namespace fragscope::shim::policy {
namespace {

template <typename Function>
void find(Function& out, const LoadedObject& library, const char* symbol) {
  out = reinterpret_cast<Function>(find_symbol(library, symbol));
}

HookId malloc_id(const Backend& backend) {
  return backend.library == Library::runtime ? HookId::cudaMalloc : HookId::cuMemAlloc_v2;
}

HookId free_id(const Backend& backend) {
  return backend.library == Library::runtime ? HookId::cudaFree : HookId::cuMemFree_v2;
}

}  // namespace

Backend backend_of(Library library, const void* function) noexcept {
  const LoadedObject object = object_of(function);
  const bool runtime = library == Library::runtime;
  Backend backend;
  backend.library = library;
  find(backend.malloc, object, runtime ? "cudaMalloc" : "cuMemAlloc_v2");
  find(backend.free, object, runtime ? "cudaFree" : "cuMemFree_v2");
  find(backend.synchronize, object, runtime ? "cudaDeviceSynchronize" : "cuCtxSynchronize");
  find(backend.memory_info, object, runtime ? "cudaMemGetInfo" : "cuMemGetInfo_v2");
  if (runtime) find(backend.take_last_error, object, "cudaGetLastError");
  return backend;
}

std::optional<uint64_t> RealSegments::device_malloc(uint64_t bytes) {
  DevicePtr address = 0;
  last_result_ = backend_.malloc(&address, bytes);
  Event event;
  event.kind = EventKind::device_alloc;
  event.api = static_cast<uint16_t>(malloc_id(backend_));
  event.result = last_result_;
  event.size = event.requested = bytes;
  if (last_result_ == kSuccess) event.address = address;
  last_address_ = address;
  if (Session* const session = session_for(event.kind)) submit(*session, event);
  if (last_result_ != kSuccess) return std::nullopt;
  return address;
}

void RealSegments::device_free(uint64_t address, uint64_t) {
  Event event;
  event.kind = EventKind::device_free;
  event.api = static_cast<uint16_t>(free_id(backend_));
  event.address = address;
  open_event(event);
  close_event(backend_.free(address));
}

model::DeviceMemoryInfo RealSegments::memory_info() {
  size_t free_bytes = 0;
  size_t total = 0;
  if (backend_.memory_info(&free_bytes, &total) != kSuccess) return {};
  return {free_bytes, total};
}

}  // namespace fragscope::shim::policy
