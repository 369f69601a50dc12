// Walks the frames of a CPython thread, newest first. `Reader`: see checked_memory.h.
#pragma once

#include <cstdint>

#include "shim/checked_memory.h"
#include "shim/python_runtime.h"

namespace fragscope::shim {

enum class Walk : uint8_t { go_on, stop, fail };

// Calls visit(code object, offset of the instruction in bytes) for every frame of Python code until
// it says otherwise. False when it failed, when memory could not be read, or when a frame holds
// something else than code where code must be.
// `Start` reads the thread's state alone: most threads of libraries have no frame.
template <typename Reader, typename Start = Reader, typename Visit>
bool walk_python_frames(const PythonRuntime& python, uintptr_t thread, Visit&& visit) noexcept {
  const PythonLayout& layout = python.layout;
  const auto load = [](uintptr_t base, int32_t offset, auto& out) {
    return Reader::load(base + static_cast<uintptr_t>(offset), out);
  };
  const auto start = [](uintptr_t base, int32_t offset, auto& out) {
    return Start::load(base + static_cast<uintptr_t>(offset), out);
  };
  uintptr_t frame = 0;
  if (!start(thread, layout.thread_frame, frame)) return false;
  if (layout.cframe_frame >= 0 && !start(frame, layout.cframe_frame, frame)) return false;
  while (frame != 0) {
    uintptr_t code = 0;
    uint8_t owner = 0;
    if (!load(frame, layout.frame_code, code)) return false;
    code &= ~uintptr_t{7};  // from 3.14 on the low bits are tags
    if (layout.frame_owner >= 0 && !load(frame, layout.frame_owner, owner)) return false;
    if (owner < kFirstShimOwner && code != 0) {
      uintptr_t type = 0;
      if (!load(code, kObjectType, type) || type != python.code_type) return false;
      int instruction = 0;
      if (layout.code_bytes < 0) {
        if (!load(frame, layout.frame_instruction, instruction)) return false;
        if (layout.minor >= 10 && instruction > 0) instruction *= 2;  // counted in instructions
      } else {
        uintptr_t at = 0;
        if (!load(frame, layout.frame_instruction, at)) return false;
        instruction = static_cast<int>(at - (code + static_cast<uintptr_t>(layout.code_bytes)));
      }
      const Walk answer = visit(code, instruction);
      if (answer != Walk::go_on) return answer == Walk::stop;
    }
    if (!load(frame, layout.frame_previous, frame)) return false;
  }
  return true;
}

}  // namespace fragscope::shim
