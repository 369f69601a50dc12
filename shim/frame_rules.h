// Where the caller of a frame is: read from a module's call frame information (.eh_frame) once per
// return address and kept in a table, so that a stack is walked with a few loads per frame.
//
// Only what compilers write almost everywhere is a rule: the caller's stack pointer (CFA) is the
// stack or base pointer plus a constant, the return address lies below it, the caller's base
// pointer is unchanged or saved at a constant place. Everything else (expressions, signal frames,
// code without information) is `unknown`, and such a stack is libunwind's. x86-64; elsewhere every
// frame is unknown.
//
// Threads: any. No lock, no allocation; modules are found without the loader's lock.
#pragma once

#include <cstdint>

namespace fragscope::shim {

struct FrameRule {
  enum class Kind : uint8_t { none, unknown, outermost, from_sp, from_bp };
  Kind kind = Kind::unknown;
  uint32_t cfa_offset = 0;  // CFA = stack (base) pointer + this, bytes
  uint32_t bp_offset = 0;   // caller's base pointer: at CFA - this; 0: unchanged
};

// Of code that is loaded and on the calling thread's stack. `return_address`: after the call.
FrameRule frame_rule(uintptr_t return_address) noexcept;

// After something was unloaded.
void forget_frame_rules() noexcept;

}  // namespace fragscope::shim
