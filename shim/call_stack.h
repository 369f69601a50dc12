// Native call stacks: by the rules of stack_walk.h where those suffice, else by libunwind's cached
// fast path. Both give the same frames.
//
// libunwind is opened on first use, out of the global symbol scope: it exports _Unwind_* and would
// take over the C++ exceptions of the host. Without it stacks are not recorded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fragscope::shim {

inline constexpr size_t kMaxStackDepth = 1024;
inline constexpr size_t kMaxOwnFrames = 16;

// Opens libunwind; false when it is not there. Called at the start of a session.
bool open_unwinder() noexcept;

// Some thread is inside libunwind, or was when this process was forked from its parent: libunwind's
// locks are then held for ever, and a child must not take native stacks. To be asked while a
// session begins, when no thread of this process can have taken one.
bool is_unwinder_entered() noexcept;

struct CallStack {
  uint64_t frames[kMaxStackDepth + kMaxOwnFrames];  // as in event/frame.h
  size_t count = 0;
  bool truncated = false;
  uint64_t native_hash = 0;  // of the native frames; 0: there are none
};
// Appends at most `depth` frames of the host above the hook, fewer when there is less room. Takes
// no lock of ours, allocates nothing.
void append_native_frames(CallStack& out, size_t depth) noexcept;

// Addresses of a helper (the torch adaptor) whose frames are left out like the shim's own.
void leave_out_frames(uintptr_t start, uintptr_t end) noexcept;

// After something was unloaded: what was learnt about its addresses is forgotten before the next
// stack. Takes no lock, of libunwind neither: a forked child may call it at any time.
void flush_unwinder() noexcept;

}  // namespace fragscope::shim
