// The functions behind the hooks: which real function a call must go to.
//
// Several libraries may define the same function at once (libcudart.so.12 and .13, a trampoline of
// TensorFlow, another preload). Every real pointer that is met gets a slot of its hook, and every
// slot has a wrapper of its own, so a wrapper never forwards to a library its caller did not mean.
//
// Threads: any; lock-free once found.
#pragma once

#include "shim/hook_table.h"

namespace fragscope::shim {

inline constexpr int kSlots = 4;  // different real functions per hook

// For a call of the exported symbol: what the caller's module would have reached without us.
//   driver   another preload behind us, else libcuda.so.1
//   runtime  another preload behind us, else the libcudart that the caller's module needs, else the
//            first one loaded
// nullptr: there is none. `caller` is the return address of the exported function.
void* real_for_caller(HookId id, const void* caller) noexcept;

// What slot `slot` of `id` forwards to; never nullptr for a wrapper that was handed out.
void* real_in_slot(HookId id, int slot) noexcept;

// The slot whose real function is `real`, taken if need be; -1 when all are in use.
int bind_slot(HookId id, void* real) noexcept;

// Whether any loaded object but this library defines `symbol`.
bool is_defined_elsewhere(const char* symbol) noexcept;

// An unhooked function of the driver (getters, synchronise); nullptr while no driver is loaded.
void* driver_function(const char* symbol) noexcept;

// Asks the loader, which has a lock, for what stands behind the runtime's functions: later
// real_for_caller() need not. What is loaded into the global scope after it counts for callers
// alone that need no runtime of their own.
void find_next_definitions() noexcept;

// The C library's own dlsym(RTLD_NEXT, name) as seen from libfragscope.so.
void* next_definition(const char* name) noexcept;

}  // namespace fragscope::shim
