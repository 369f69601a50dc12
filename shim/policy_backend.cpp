#include "shim/policy_backend.h"

#include <atomic>

#include "shim/caps.h"
#include "shim/elf_lookup.h"
#include "shim/real_api.h"
#include "shim/recorder.h"
#include "shim/refusals.h"

namespace fragscope::shim::policy {
namespace {

constinit thread_local const Backend* t_calling __attribute__((tls_model("initial-exec"))) =
    nullptr;

template <typename Function>
void find(Function& out, const LoadedObject& library, const char* symbol) {
  out = reinterpret_cast<Function>(find_symbol(library, symbol));
}

template <typename Function>
void find_driver(Function& out, const char* symbol) {
  out = reinterpret_cast<Function>(driver_function(symbol));
}

Backend look_up(Library library, const LoadedObject& object) {
  const bool runtime = library == Library::runtime;
  Backend backend;
  backend.library = library;
  enforce::CudaFunctions& cuda = backend.cuda;
  find(cuda.malloc, object, runtime ? "cudaMalloc" : "cuMemAlloc_v2");
  find(cuda.free, object, runtime ? "cudaFree" : "cuMemFree_v2");
  find(cuda.synchronize, object, runtime ? "cudaDeviceSynchronize" : "cuCtxSynchronize");
  find(cuda.memory_info, object, runtime ? "cudaMemGetInfo" : "cuMemGetInfo_v2");
  if (runtime) find(cuda.take_last_error, object, "cudaGetLastError");
  // The runtime loads the driver with its first call.
  if (cuda.free != nullptr && driver_function("cuInit") == nullptr) static_cast<void>(cuda.free(0));
  find_driver(cuda.event_create, "cuEventCreate");
  find_driver(cuda.event_record, "cuEventRecord");
  find_driver(cuda.event_query, "cuEventQuery");
  find_driver(cuda.event_synchronize, "cuEventSynchronize");
  find_driver(cuda.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  find_driver(cuda.context_push, "cuCtxPushCurrent_v2");
  find_driver(cuda.context_pop, "cuCtxPopCurrent_v2");
  find_driver(cuda.context_current, "cuCtxGetCurrent");
  return backend;
}

// One per library that was met. Filled once, never taken away: a library that is unloaded leaves
// pointers that nobody calls any more.
struct Slot {
  std::atomic<int> state;  // 0 free, 1 being filled, 2 ready
  const void* dynamic;     // which library
  Backend backend;
};
constexpr size_t kLibraries = 8;
constinit Slot g_slots[kLibraries]{};

HookId malloc_id(const Backend& backend) {
  return backend.library == Library::runtime ? HookId::cudaMalloc : HookId::cuMemAlloc_v2;
}

HookId free_id(const Backend& backend) {
  return backend.library == Library::runtime ? HookId::cudaFree : HookId::cuMemFree_v2;
}

// By the function: a look-up of the library takes the loader's lock.
struct Known {
  std::atomic<const void*> function;
  std::atomic<const Backend*> backend;
};
constexpr size_t kFunctions = 32;
constinit Known g_known[kFunctions]{};

const Backend* known(const void* function) {
  for (const Known& entry : g_known) {
    const void* const at = entry.function.load(std::memory_order_acquire);
    if (at == nullptr) return nullptr;
    if (at == function) return entry.backend.load(std::memory_order_acquire);
  }
  return nullptr;
}

void remember(const void* function, const Backend* backend) {
  for (Known& entry : g_known) {
    const void* at = nullptr;
    if (entry.function.compare_exchange_strong(at, function) || at == function) {
      entry.backend.store(backend, std::memory_order_release);
      return;
    }
  }
}

const Backend* slot_of(Library library, const LoadedObject& object) {
  const Backend found = look_up(library, object);
  if (!found.cuda.complete()) return nullptr;
  for (Slot& slot : g_slots) {
    int state = 0;
    if (slot.state.compare_exchange_strong(state, 1)) {
      slot.dynamic = object.dynamic;
      slot.backend = found;
      slot.state.store(2, std::memory_order_release);
      return &slot.backend;
    }
    if (state == 2 && slot.dynamic == object.dynamic) return &slot.backend;
  }
  return nullptr;
}

}  // namespace

const Backend* backend_of(Library library, const void* function) noexcept {
  if (const Backend* const backend = known(function)) return backend;
  const LoadedObject object = object_of(function);
  if (!object) return nullptr;
  const Backend* const backend = slot_of(library, object);
  if (backend != nullptr) remember(function, backend);
  return backend;
}

RecordedDevice::Calling::Calling(const Backend& backend) noexcept { t_calling = &backend; }
RecordedDevice::Calling::~Calling() { t_calling = nullptr; }

enforce::CudaResult RecordedDevice::malloc(uint64_t bytes, uint64_t& address) {
  const enforce::CudaDevice::Current current(cuda_);
  Event event;
  event.kind = EventKind::device_alloc;
  const HookId id = malloc_id(*t_calling);
  const auto malloc = t_calling->cuda.malloc;
  event.api = static_cast<uint16_t>(id);
  event.size = event.requested = bytes;
  caps::Ticket ticket;
  if (caps::active()) ticket = caps::admit(id, reinterpret_cast<const void*>(malloc), event);
  event.result = malloc(&address, ticket.refused() ? refusals::kImpossibleBytes : bytes);
  if (event.result == kSuccess) event.address = address;
  if (ticket.refused() && event.result != kSuccess) event.flags |= kFlagRefused;
  caps::settle(ticket, event);
  const int result = event.result;
  if (Session* const session = session_for(event.kind)) submit(*session, event);
  return result;
}

enforce::CudaResult RecordedDevice::free(uint64_t address) {
  const enforce::CudaDevice::Current current(cuda_);
  Event event;
  event.kind = EventKind::device_free;
  event.api = static_cast<uint16_t>(free_id(*t_calling));
  event.address = address;
  caps::FreeTicket ticket;
  if (caps::active()) ticket = caps::begin_free(event);
  open_event(event);
  const int result = t_calling->cuda.free(address);
  close_event(result);
  caps::end_free(ticket, result);
  return result;
}

enforce::CudaResult RecordedDevice::synchronize() {
  const enforce::CudaDevice::Current current(cuda_);
  return t_calling->cuda.synchronize();
}

bool RecordedDevice::memory_info(uint64_t& free_bytes, uint64_t& total) {
  const enforce::CudaDevice::Current current(cuda_);
  size_t free_now = 0;
  size_t total_now = 0;
  if (t_calling->cuda.memory_info(&free_now, &total_now) != kSuccess) return false;
  if (caps::active()) caps::adjust(&free_now, &total_now);
  free_bytes = free_now;
  total = total_now;
  return true;
}

void RecordedDevice::forget_last_error() {
  if (t_calling->cuda.take_last_error == nullptr) return;
  static_cast<void>(t_calling->cuda.take_last_error());
}

}  // namespace fragscope::shim::policy
