// From a hooked call to an event in the log.
//
// Everything here is noexcept and keeps errno; nothing waits, and after the first call of a process
// nothing allocates. The only CUDA calls are the getters below (read-only, without effect on
// capture or last error) and, once per device, those of device_facts.h.
#pragma once

#include "event/event.h"
#include "shim/cuda_abi.h"
#include "shim/hook_table.h"
#include "shim/session.h"
#include "shim/thread_state.h"

namespace fragscope::shim {

// Frame of one hooked call: counts it and tells nested calls (runtime over driver) apart.
//
// Exceptions of host callbacks pass through hooked calls. The frames of the hooks have no clean-up
// code (exports.cpp is compiled without exceptions): the host's unwinder must not run a personality
// routine, or resume, in this library's own copy of libgcc, which may be another version. Instead
// FRAGSCOPE_UNWIND_NOTICE gives them a personality that touches nothing of the unwinder's and only
// notes that the call is over. A longjmp is noticed later: a call that is not below the abandoned
// one on the stack cannot be inside it.
class HookScope {
 public:
  HookScope(HookId id, const void* frame) noexcept;
  ~HookScope();
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

  // The call is left by an exception.
  static void abandon() noexcept;

  // False for calls inside hooked calls: the outermost one reports.
  bool outermost() const noexcept { return outermost_; }

 private:
  HookId id_;
  bool entered_;    // this call is the thread's outer frame
  bool outermost_;  // and reports
};

extern "C" __attribute__((visibility("hidden"))) int fragscope_unwind_notice(
    int version, int actions, uint64_t exception_class, void* exception, void* context) noexcept;
// In a function that makes a hooked call: direct, pc-relative reference (encoding 0x1b).
#define FRAGSCOPE_UNWIND_NOTICE() asm volatile(".cfi_personality 0x1b, fragscope_unwind_notice")

// Ordinal of the calling thread's current device; kUnknownDevice without a context.
int32_t current_device() noexcept;
// The calling thread's current context; nullptr without one.
void* current_context() noexcept;
// The graph that the stream captures into; nullptr: it does not capture. Asked of the driver, for
// which that question is legal during capture; never of the legacy stream, which cannot capture.
const void* capturing_graph(Stream stream) noexcept;
// The device still has a primary context. Asked when the program has given up a reference to it.
bool is_primary_active(int device) noexcept;
// From now on allocations name the context they belong to.
void note_several_contexts() noexcept;

// Fills what every event has (time, thread, stack; device if it is unknown) and writes it.
void submit(Session& session, Event& event) noexcept;

// The session that an event of this kind goes to: memory calls create one, others only join it.
Session* session_for(EventKind kind) noexcept;

// An event is logged before its call: open_event(); close_event() puts the result in. One per
// thread at a time (only the outermost call has one).
void open_event(Event& event) noexcept;
void close_event(int result) noexcept;

}  // namespace fragscope::shim
