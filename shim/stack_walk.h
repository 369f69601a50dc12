// The frames of the calling thread, walked with FrameRules; what the last walk found is used again
// where it still holds.
//
// Between two events of a thread most of its stack stands still. A walk that reaches a frame of the
// last one (same return address, stack and base pointer) would read the same words from there on as
// it did then: every one of them is compared with what it was, and where all are equal so are the
// frames. Nothing is believed that was not read again; the result is what a walk from scratch
// gives.
//
// Call frame information may be wrong (hand-written assembly, a stack that is changed in the middle
// of a function): nothing is read beyond what was proved to be there. The thread's own stack is
// proved once, as far as it was used; every other stack by a system call per walk, for it may have
// been unmapped since.
//
// Threads: a WalkMemory belongs to one walk at a time (StackWalk takes one that is free, or none).
// No lock, no allocation, nobody waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/frame_rules.h"

namespace fragscope::shim {

// In a frame: its instruction (after the call), stack pointer and base pointer.
struct FrameState {
  uint64_t ip;
  uint64_t sp;
  uint64_t bp;
};

// Where the calling function is. Taken in one piece: no stack pointer moves in between.
__attribute__((always_inline)) inline FrameState state_here() {
  FrameState state{};
#if defined(__x86_64__)
  asm volatile(
      "lea 0f(%%rip), %0\n"
      "0: mov %%rsp, %1\n"
      "mov %%rbp, %2\n"
      : "=&r"(state.ip), "=&r"(state.sp), "=&r"(state.bp));
#endif
  return state;
}

// What can be read above the stack pointer of a walk.
class StackWindow {
 public:
  // Before a walk from `sp`. False: this system refuses to tell what can be read.
  bool begin(uint64_t sp) noexcept;
  // [from, end) can be read; `from` is above what was asked for before in this walk.
  bool reaches(uint64_t from, uint64_t end) noexcept { return end <= high_ || extend(from, end); }
  // Without looking any further.
  bool has(uint64_t end) const { return end <= high_; }

 private:
  bool extend(uint64_t from, uint64_t end) noexcept;

  uint64_t high_ = 0;
  // Proved, of the own stack of the thread that walked last on its own.
  uint64_t own_low_ = 0;
  uint64_t own_end_ = 0;
};

class WalkMemory {
 public:
  static constexpr size_t kMostFrames = 192;

  struct Frame {
    FrameState state;
    const uint64_t* bp_from;  // where the frame inside saved this bp; nullptr: it left it alone
    uint64_t hash;            // of this frame and all outside of it
  };

  // False: some frame has no plain rule, or there are more than kMostFrames.
  bool walk(FrameState start) noexcept;
  // The last walk ended at a frame whose information leads to what cannot be read: no unwinder
  // gets further.
  bool is_cut() const { return cut_; }
  void forget() { count_ = 0; }

  // Outermost first. The first may be no frame: ip 0, where a walk ended at a return address of 0.
  const Frame* frames() const { return frames_; }
  size_t count() const { return count_; }

  std::atomic<bool> taken{false};

 private:
  friend class StackWalk;
  struct Found {
    FrameState state;
    const uint64_t* bp_from;
  };

  bool holds(const Frame& frame) const;
  bool push(const FrameState& state, const uint64_t* bp_from);
  size_t held_from(size_t inner) const;
  enum class Step : uint8_t { ok, end, unknown, unreadable };
  Step step(Found& at, KnownFrame*& inside);
  bool keep(size_t outer);

  uint64_t generation_ = 0;  // of unloading: addresses mean other functions after it
  size_t count_ = 0;
  size_t fresh_count_ = 0;
  bool cut_ = false;
  StackWindow window_;
  KnownFrame start_{};  // guesses where walks begin
  Frame frames_[kMostFrames]{};
  Found fresh_[kMostFrames]{};  // innermost first
};

// One walk of the calling thread, from the caller's frame outwards.
class StackWalk {
 public:
  // `generation`: changes whenever something was unloaded.
  StackWalk(FrameState start, uint64_t generation) noexcept;
  ~StackWalk();
  StackWalk(const StackWalk&) = delete;
  StackWalk& operator=(const StackWalk&) = delete;

  // nullptr: this stack is not walked by rules.
  const WalkMemory* result() const noexcept { return walked_ ? memory_ : nullptr; }

 private:
  WalkMemory* memory_;
  bool walked_;
};

// What hashes of frames start from, and how one more frame (further inside) is added.
inline constexpr uint64_t kNoFramesHash = 0x243F6A8885A308D3ull;
inline uint64_t add_frame_hash(uint64_t outside, uint64_t frame) {
  const uint64_t mixed = (outside ^ frame) * 0x9E3779B97F4A7C15ull;
  return mixed ^ mixed >> 32;
}

}  // namespace fragscope::shim
