// Where the caller of a frame is: read from a module's call frame information (.eh_frame) once per
// return address and kept, so that a stack is walked with a few loads per frame.
//
// Only what compilers write almost everywhere is a rule: the caller's stack pointer (CFA) is the
// stack or base pointer plus a constant, the return address lies below it, the caller's base
// pointer is unchanged or saved at a constant place. Everything else (expressions, signal frames,
// code without information) is `unknown`, and such a stack is libunwind's. x86-64; elsewhere every
// frame is unknown. Information that leads to what cannot be read is `broken`: no unwinder is to
// follow it.
//
// Threads: any. No lock, no allocation; modules are found without the loader's lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fragscope::shim {

struct FrameRule {
  enum class Kind : uint8_t { unknown, outermost, from_sp, from_bp, broken };
  Kind kind = Kind::unknown;
  uint32_t cfa_offset = 0;  // CFA = stack (base) pointer + this, bytes
  uint32_t bp_offset = 0;   // caller's base pointer: at CFA - this; 0: unchanged
};

// A rule in one word: kind 3 bits, CFA offset / 8 of 15 bits, base pointer's offset / 8 of 14.
class PackedRule {
 public:
  PackedRule() = default;
  // Unknown if it does not fit.
  explicit PackedRule(FrameRule rule) {
    const uint32_t cfa = rule.cfa_offset / 8;
    const uint32_t bp = rule.bp_offset / 8;
    if (cfa >> kCfaBits != 0 || bp >> kBpBits != 0) return;
    if ((rule.cfa_offset | rule.bp_offset) % 8 != 0) return;
    word_ = static_cast<uint32_t>(rule.kind) << (kCfaBits + kBpBits) | cfa << kBpBits | bp;
  }
  FrameRule::Kind kind() const {
    return static_cast<FrameRule::Kind>(word_ >> (kCfaBits + kBpBits));
  }
  uint32_t cfa_offset() const { return (word_ >> kBpBits & ((1u << kCfaBits) - 1)) * 8; }
  uint32_t bp_offset() const { return (word_ & ((1u << kBpBits) - 1)) * 8; }

 private:
  static constexpr unsigned kCfaBits = 15;
  static constexpr unsigned kBpBits = 14;
  uint32_t word_ = 0;
};

// What is known of one return address. They lie in the order in which they were met, a caller
// mostly beside what it called, and each remembers who called it the last times: a guess that
// spares the look-up in a table, whose lines the host's own work has pushed out of the caches.
struct KnownFrame {
  std::atomic<uint64_t> ip;  // 0: not filled, or forgotten
  PackedRule rule;           // of `ip`, before that is set
  static constexpr size_t kGuesses = 3;
  std::atomic<KnownFrame*> callers[kGuesses];  // from the newest; nullptr: fewer
};

// Of a return address (after the call) of code that is loaded and on the calling thread's stack;
// `inside`: the frame that it called, or what else guesses are kept in. nullptr: there is no more
// room.
KnownFrame* look_up_frame(uintptr_t return_address, KnownFrame& inside) noexcept;
inline KnownFrame* known_frame(uintptr_t return_address, KnownFrame& inside) noexcept {
  for (const auto& caller : inside.callers) {
    KnownFrame* const guess = caller.load(std::memory_order_relaxed);
    if (guess == nullptr) break;
    if (guess->ip.load(std::memory_order_acquire) == return_address) return guess;
  }
  return look_up_frame(return_address, inside);
}

// After something was unloaded.
void forget_frame_rules() noexcept;

}  // namespace fragscope::shim
