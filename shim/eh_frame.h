// Reading a FrameRule from a loaded module's .eh_frame (x86-64 System V ABI, DWARF call frame
// information). Threads: any. No lock, no allocation.
#pragma once

#include <cstdint>

#include "shim/frame_rules.h"

namespace fragscope::shim {

// Takes microseconds; known_frame() remembers the answer.
FrameRule read_frame_rule(uintptr_t return_address) noexcept;

}  // namespace fragscope::shim
