// What one 64-bit value of a recorded call stack stands for.
#pragma once

#include <cstdint>

namespace fragscope {

// A frame is a return address of native code, or this bit and the id of a Python frame in the
// process's table. No user-space address has the bit. A stack lists the Python frames first, then
// the native ones, both innermost first.
inline constexpr uint64_t kPythonFrame = uint64_t{1} << 63;

constexpr bool is_python_frame(uint64_t frame) { return (frame & kPythonFrame) != 0; }
constexpr uint32_t python_frame_id(uint64_t frame) { return static_cast<uint32_t>(frame); }

}  // namespace fragscope
