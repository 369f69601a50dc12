// Which wrapper stands for a function pointer that the host asked for.
#pragma once

#include <cstdint>

#include "shim/hook_table.h"

namespace fragscope::shim {

// The wrapper of one slot (exports.cpp).
void* wrapper_of(HookId id, int slot) noexcept;

// `real` is what a look-up of the ELF symbol `name` answered. Returns a wrapper that forwards to
// `real`, or `real` itself when it is not a hooked function of a CUDA library.
void* substitute_symbol(const char* name, void* real) noexcept;

// The same for an answer of cuGetProcAddress: `base` is a name without version suffix. `version` 0:
// not known (only the pointer decides).
inline constexpr int kUnknownVersion = 0;
void* substitute_function(const char* base, int version, uint64_t flags, void* real) noexcept;

// Flags as seen by a resolver of the per-thread-default-stream flavour.
constexpr uint64_t ptsz_flags(uint64_t flags) { return flags == 0 ? 2 : flags; }

}  // namespace fragscope::shim
