// The hooked CUDA functions, expanded from intercepts.def: for each an exported wrapper, which
// finds the real function of its caller, and one wrapper per slot for pointers that look-ups hand
// out. Exceptions of host callbacks pass through all of this, see recorder.h.

#include "shim/caps.h"
#include "shim/coverage.h"
#include "shim/export.h"
#include "shim/lookup.h"
#include "shim/observers.h"
#include "shim/policy.h"
#include "shim/real_api.h"
#include "shim/recorder.h"
#include "shim/refusals.h"
#include "shim/torch_blocks.h"

namespace fragscope::shim {
namespace {

template <typename Fill>
Event event_of(HookId id, int result, Fill fill) {
  const ErrnoKeeper keep;
  Event event;
  event.api = static_cast<uint16_t>(id);
  fill(event, result);
  return event;
}

template <typename Fill>
Event event_before(HookId id, Fill fill) {
  return event_of(id, kResultPending, fill);
}

void record(Event& event) {
  const ErrnoKeeper keep;
  if (event.kind == EventKind::none) return;
  Session* const session = session_for(event.kind);
  if (session == nullptr) return;
  submit(*session, event);
  attach_torch_if_seen();
}

// What the policy holds idle may be what CUDA lacks: then once more.
template <typename Call, typename Fill>
int call_with_room(HookId id, const void* real, Call call, Fill fill) {
  const int result = call();
  if (result != kErrorOutOfMemory || !policy::enabled()) return result;
  if (!policy::make_room(id, real, event_before(id, fill))) return result;
  const int again = call();
  if (again == kSuccess) policy::forget_last_error(id, real);
  return again;
}

template <typename Call, typename Fill>
[[gnu::noinline]] int run_after(HookId id, const void* real, Call call, Fill fill) {
  FRAGSCOPE_UNWIND_NOTICE();
  const HookScope scope(id, __builtin_frame_address(0));
  if (!scope.outermost()) return call();
  const int result = call_with_room(id, real, call, fill);
  Event event = event_of(id, result, fill);
  if (caps::active()) caps::note(event);
  record(event);
  return result;
}

// An allocation that the caps may refuse; `refuse` makes CUDA itself refuse it.
template <typename Call, typename Refuse, typename Fill>
int allocate_capped(HookId id, const void* real, Call call, Refuse refuse, Fill fill) {
  caps::Ticket ticket;
  if (caps::active()) ticket = caps::admit(id, real, event_before(id, fill));
  if (ticket.over_limit && policy::enabled() &&
      policy::make_room(id, real, event_before(id, fill))) {
    ticket = caps::admit_again(id, real, event_before(id, fill));
  }
  const int result = ticket.refused() ? refuse() : call_with_room(id, real, call, fill);
  Event event = event_of(id, result, fill);
  if (ticket.refused() && result != kSuccess) event.flags |= kFlagRefused;
  caps::settle(ticket, event);
  record(event);
  return result;
}

template <typename Call, typename Refuse, typename Fill>
[[gnu::noinline]] int run_capped(HookId id, const void* real, Call call, Refuse refuse, Fill fill) {
  FRAGSCOPE_UNWIND_NOTICE();
  const HookScope scope(id, __builtin_frame_address(0));
  if (!scope.outermost()) return call();
  return allocate_capped(id, real, call, refuse, fill);
}

// The program is told of a device; `adjust` makes the answer fit the caps.
template <typename Call, typename Adjust, typename Fill>
[[gnu::noinline]] int run_answer(HookId id, Call call, Adjust adjust, Fill fill) {
  FRAGSCOPE_UNWIND_NOTICE();
  const HookScope scope(id, __builtin_frame_address(0));
  const int result = call();
  if (!scope.outermost()) return result;
  if (result == kSuccess && caps::active()) adjust();
  Event event = event_of(id, result, fill);
  record(event);
  return result;
}

template <typename Call, typename Fill>
[[gnu::noinline]] int run_before(HookId id, Call call, Fill fill) {
  FRAGSCOPE_UNWIND_NOTICE();
  const HookScope scope(id, __builtin_frame_address(0));
  if (!scope.outermost()) return call();
  Event event = event_before(id, fill);
  caps::FreeTicket ticket;
  if (caps::active()) ticket = caps::begin_free(event);
  open_event(event);
  const int result = call();
  close_event(result);
  caps::end_free(ticket, result);
  return result;
}

// Runtime and driver differ in the names of types only.
template <typename To, typename From>
To same_abi(From* function) {
  return reinterpret_cast<To>(reinterpret_cast<void*>(function));
}

// The policy may answer an outermost call instead of CUDA.
template <typename Real, typename Out, typename Fill>
[[gnu::noinline]] int run_served_after(HookId id, Real real, Out* out, size_t bytes, Fill fill) {
  FRAGSCOPE_UNWIND_NOTICE();
  const HookScope scope(id, __builtin_frame_address(0));
  if (!scope.outermost()) return real(out, bytes);
  int result = kSuccess;
  if (policy::enabled() && policy::allocate(id, same_abi<policy::RealMalloc>(real),
                                            reinterpret_cast<DevicePtr*>(out), bytes, result)) {
    return result;
  }
  return allocate_capped(
      id, reinterpret_cast<const void*>(real), [&] { return real(out, bytes); },
      [&] { return refusals::refuse(id, real, out, bytes); }, fill);
}

template <typename Real, typename Pointer, typename Fill>
[[gnu::noinline]] int run_served_before(HookId id, Real real, Pointer address, Fill fill) {
  FRAGSCOPE_UNWIND_NOTICE();
  const HookScope scope(id, __builtin_frame_address(0));
  if (!scope.outermost()) return real(address);
  int result = kSuccess;
  if (policy::enabled() &&
      policy::release(id, same_abi<policy::RealFree>(real), (DevicePtr)(address), result)) {
    return result;
  }
  Event event = event_before(id, fill);
  caps::FreeTicket ticket;
  if (caps::active()) ticket = caps::begin_free(event);
  open_event(event);
  result = real(address);
  close_event(result);
  caps::end_free(ticket, result);
  return result;
}

// cudaFreeAsync of what the policy served.
template <typename Real, typename Pointer, typename Fill>
[[gnu::noinline]] int run_served_async(HookId id, Real real, Pointer address, Stream stream,
                                       Fill fill) {
  FRAGSCOPE_UNWIND_NOTICE();
  const HookScope scope(id, __builtin_frame_address(0));
  if (!scope.outermost()) return real(address, stream);
  int result = kSuccess;
  const Stream meant = info(id).flavour == Flavour::ptsz ? per_thread(stream) : stream;
  if (policy::enabled() && policy::release_async(id, same_abi<policy::RealFreeAsync>(real),
                                                 (DevicePtr)(address), meant, result)) {
    return result;
  }
  Event event = event_before(id, fill);
  caps::FreeTicket ticket;
  if (caps::active()) ticket = caps::begin_free(event);
  open_event(event);
  result = real(address, stream);
  close_event(result);
  caps::end_free(ticket, result);
  return result;
}

template <typename Real, typename Pointer, typename Fill>
[[gnu::noinline]] int run_served_export(HookId id, Real real, IpcHandle* out, Pointer address,
                                        Fill fill) {
  FRAGSCOPE_UNWIND_NOTICE();
  const HookScope scope(id, __builtin_frame_address(0));
  int result = kSuccess;
  if (scope.outermost() && policy::enabled() &&
      policy::refuse_export(id, same_abi<policy::RealExport>(real), out, (DevicePtr)(address),
                            result)) {
    return result;
  }
  result = real(out, address);
  if (!scope.outermost()) return result;
  Event event = event_of(id, result, fill);
  record(event);
  return result;
}

// What a call ends is asked before it: afterwards there is no current device.
template <typename Call, typename Fill>
[[gnu::noinline]] int run_reset(HookId id, Call call, Fill fill) {
  const int device = event_before(id, fill).device;
  const int result = run_before(id, call, fill);
  if (result == kSuccess) policy::forget_device(device);
  return result;
}

template <typename Call, typename Fill>
[[gnu::noinline]] int run_context_end(HookId id, Call call, Fill fill) {
  const uint64_t context = event_before(id, fill).address;
  const int result = run_before(id, call, fill);
  if (result == kSuccess) policy::forget_context(reinterpret_cast<const void*>(context));
  return result;
}

template <typename Call, typename Fill>
[[gnu::noinline]] int run_primary_release(HookId id, const void* real, Call call, Fill fill) {
  const int result = run_after(id, real, call, fill);
  if (result != kSuccess) return result;
  const ErrnoKeeper keep;
  Event event;
  fill(event, result);
  if (event.kind == EventKind::context_destroy) policy::forget_device(event.device);
  return result;
}

template <typename Function>
Function real_of_caller(HookId id, const void* caller) {
  const ErrnoKeeper keep;
  return reinterpret_cast<Function>(real_for_caller(id, caller));
}

// (void** out, size_t bytes) -> , void** out, size_t bytes
#define FS_MORE(...) __VA_OPT__(, ) __VA_ARGS__

#define FS_UNPACK(...) __VA_ARGS__
#define FS_FILL(observer) [&](Event& event, int result) { Observer(event, result).observer; }
#define FS_RUN_after(id, args, observer) \
  run_after(                             \
      id, reinterpret_cast<const void*>(real), [&] { return real args; }, FS_FILL(observer))
#define FS_RUN_before(id, args, observer) \
  run_before(                             \
      id, [&] { return real args; }, FS_FILL(observer))
#define FS_RUN_capped(id, args, observer)                                 \
  run_capped(                                                             \
      id, reinterpret_cast<const void*>(real), [&] { return real args; }, \
      [&] { return refusals::refuse(id, real, FS_UNPACK args); }, FS_FILL(observer))
#define FS_RUN_answer(id, args, observer) \
  run_answer(                             \
      id, [&] { return real args; }, [&] { caps::adjust args; }, FS_FILL(observer))
#define FS_RUN_reset(id, args, observer) \
  run_reset(                             \
      id, [&] { return real args; }, FS_FILL(observer))
#define FS_RUN_context_end(id, args, observer) \
  run_context_end(                             \
      id, [&] { return real args; }, FS_FILL(observer))
#define FS_RUN_primary_release(id, args, observer) \
  run_primary_release(                             \
      id, reinterpret_cast<const void*>(real), [&] { return real args; }, FS_FILL(observer))
#define FS_RUN_served_async(id, args, observer) \
  run_served_async(id, real, FS_UNPACK args, FS_FILL(observer))
#define FS_RUN_served_export(id, args, observer) \
  run_served_export(id, real, FS_UNPACK args, FS_FILL(observer))
#define FS_RUN_served_after(id, args, observer) \
  run_served_after(id, real, FS_UNPACK args, FS_FILL(observer))
#define FS_RUN_served_before(id, args, observer) \
  run_served_before(id, real, FS_UNPACK args, FS_FILL(observer))

#define CUDA_HOOK(symbol, library, base, since, flavour, phase, params, args, observer)         \
  int hooked_##symbol(int(*real) params FS_MORE params) {                                       \
    if (real == nullptr) return kErrorSharedObjectInitFailed;                                   \
    return FS_RUN_##phase(HookId::symbol, args, observer);                                      \
  }                                                                                             \
  template <int kSlot>                                                                          \
  int slot_##symbol params {                                                                    \
    if constexpr (HookId::symbol == HookId::cuMemAddressReserve) {                              \
      look_for_torch(__builtin_extract_return_addr(__builtin_return_address(0)));               \
    }                                                                                           \
    return hooked_##symbol(reinterpret_cast<int(*) params>(real_in_slot(HookId::symbol, kSlot)) \
                               FS_MORE args);                                                   \
  }

#define RESOLVER_HOOK(symbol, library, base, since, params, args, request)                      \
  int hooked_##symbol(int(*real) params FS_MORE params) {                                       \
    if (real == nullptr) return kErrorSharedObjectInitFailed;                                   \
    const int result = real args;                                                               \
    const ErrnoKeeper keep;                                                                     \
    if (result == kSuccess && out != nullptr) *out = answer(*out, FS_UNPACK request);           \
    return result;                                                                              \
  }                                                                                             \
  template <int kSlot>                                                                          \
  int slot_##symbol params {                                                                    \
    note_request(name, __builtin_extract_return_addr(__builtin_return_address(0)));             \
    return hooked_##symbol(reinterpret_cast<int(*) params>(real_in_slot(HookId::symbol, kSlot)) \
                               FS_MORE args);                                                   \
  }

void* answer(void* real, const char* name, int version, uint64_t flags) {
  return substitute_function(name, version, flags, real);
}

#include "shim/intercepts.def"

void* const kWrappers[kHookCount][kSlots] = {
    {},
#define FS_WRAPPERS(symbol)                                                                \
  {reinterpret_cast<void*>(&slot_##symbol<0>), reinterpret_cast<void*>(&slot_##symbol<1>), \
   reinterpret_cast<void*>(&slot_##symbol<2>), reinterpret_cast<void*>(&slot_##symbol<3>)},
#define CUDA_HOOK(symbol, ...) FS_WRAPPERS(symbol)
#define RESOLVER_HOOK(symbol, ...) FS_WRAPPERS(symbol)
#include "shim/intercepts.def"
};
static_assert(kSlots == 4);

}  // namespace

void* wrapper_of(HookId id, int slot) noexcept { return kWrappers[static_cast<size_t>(id)][slot]; }

extern "C" {

#define FS_EXPORT(symbol, params, args)                                              \
  FRAGSCOPE_EXPORT int symbol params;                                                \
  int symbol params {                                                                \
    auto* const real = real_of_caller<int(*) params>(                                \
        HookId::symbol, __builtin_extract_return_addr(__builtin_return_address(0))); \
    return hooked_##symbol(real FS_MORE args);                                       \
  }
#define CUDA_HOOK(symbol, library, base, since, flavour, phase, params, args, observer) \
  FS_EXPORT(symbol, params, args)
#define RESOLVER_HOOK(symbol, library, base, since, params, args, request) \
  FS_EXPORT(symbol, params, args)
#include "shim/intercepts.def"

}  // extern "C"

}  // namespace fragscope::shim
