#include "shim/stack_walk.h"

#include <sys/auxv.h>

#include <algorithm>

#include "shim/checked_memory.h"
#include "shim/frame_rules.h"
#include "shim/thread_state.h"

namespace fragscope::shim {
namespace {

// More threads than that share: one that finds its memory taken does without.
constexpr uint32_t kMemories = 64;
constinit WalkMemory g_memories[kMemories]{};
constinit std::atomic<uint32_t> g_threads{0};

WalkMemory& memory_of_thread() {
  if (t_state.walk_memory == 0) {
    t_state.walk_memory = g_threads.fetch_add(1, std::memory_order_relaxed) % kMemories + 1;
  }
  return g_memories[t_state.walk_memory - 1];
}

const uint64_t* word_at(uint64_t address) { return reinterpret_cast<const uint64_t*>(address); }

uint64_t page_of(uint64_t address) { return address & ~(kPageBytes - 1); }

// What lies above all frames of a thread's own stack: its control block; of the first thread the
// program's random bytes.
uint64_t end_of_own_stack(uint64_t sp) {
  const auto thread = reinterpret_cast<uint64_t>(__builtin_thread_pointer());
  const uint64_t above = sp < thread ? thread : getauxval(AT_RANDOM);
  return above > sp ? page_of(above) + kPageBytes : 0;
}

}  // namespace

bool StackWindow::begin(uint64_t sp) noexcept {
  constexpr uint64_t kMostAtOnce = 4 << 20;
  const uint64_t page = page_of(sp);
  const uint64_t end = end_of_own_stack(sp);
  const bool is_known = end == own_end_ && end != 0;
  if (is_known && sp >= own_low_) {
    high_ = own_end_;
    return true;
  }
  const uint64_t gap_end = is_known ? own_low_ : end;  // what is not proved yet ends here
  if (end == 0 || gap_end - page > kMostAtOnce) {
    high_ = readable_until(page, page + kPageBytes);
    return high_ > page;
  }
  high_ = readable_until(page, gap_end);
  if (high_ == gap_end) {
    own_low_ = page;
    own_end_ = high_ = end;
  }
  return high_ > page;
}

bool StackWindow::extend(uint64_t from, uint64_t end) noexcept {
  constexpr uint64_t kAhead = 4 * kPageBytes;
  high_ = readable_until(std::max(high_, page_of(from)), end + kAhead);
  return end <= high_;
}

bool WalkMemory::holds(const Frame& frame) const {
  return window_.has(frame.state.sp) &&
         *word_at(frame.state.sp - sizeof(uint64_t)) == frame.state.ip &&
         (frame.bp_from == nullptr || *frame.bp_from == frame.state.bp);
}

bool WalkMemory::push(const FrameState& state, const uint64_t* bp_from) {
  if (fresh_count_ == kMostFrames) return false;
  fresh_[fresh_count_++] = {state, bp_from};
  return true;
}

// frames_[inner] is there: the outermost frame up to which all are. Each one's words are read only
// when the one inside of it holds, whose rule then leads to them.
size_t WalkMemory::held_from(size_t inner) const {
  while (inner > 0 && holds(frames_[inner - 1])) --inner;
  return inner;
}

WalkMemory::Step WalkMemory::step(Found& at, KnownFrame*& inside) {
  FrameState& state = at.state;
  if (state.ip == 0) return Step::end;
  KnownFrame* const known = known_frame(state.ip, *inside);
  if (known == nullptr) return Step::unknown;
  inside = known;
  const PackedRule rule = known->rule;
  if (rule.kind() == FrameRule::Kind::outermost) return Step::end;
  if (rule.kind() == FrameRule::Kind::broken) return Step::unreadable;
  if (rule.kind() == FrameRule::Kind::unknown) return Step::unknown;
  const uint64_t base = rule.kind() == FrameRule::Kind::from_sp ? state.sp : state.bp;
  const uint64_t cfa = base + rule.cfa_offset();
  if (cfa <= state.sp || cfa % sizeof(uint64_t) != 0) return Step::unknown;
  if (rule.bp_offset() > cfa - state.sp) return Step::unknown;
  const uint64_t lowest = cfa - std::max<uint64_t>(rule.bp_offset(), sizeof(uint64_t));
  if (!window_.reaches(lowest, cfa)) return Step::unreadable;
  at.bp_from = rule.bp_offset() != 0 ? word_at(cfa - rule.bp_offset()) : nullptr;
  state.ip = *word_at(cfa - sizeof(uint64_t));
  if (at.bp_from != nullptr) state.bp = *at.bp_from;
  state.sp = cfa;
  return Step::ok;
}

// frames_[0 … outer) are still there, inside of them is what was found.
bool WalkMemory::keep(size_t outer) {
  if (outer + fresh_count_ > kMostFrames) return false;
  uint64_t hash = outer > 0 ? frames_[outer - 1].hash : kNoFramesHash;
  count_ = outer;
  while (fresh_count_ > 0) {
    const Found& found = fresh_[--fresh_count_];
    if (found.state.ip != 0) hash = add_frame_hash(hash, found.state.ip);
    frames_[count_++] = {found.state, found.bp_from, hash};
  }
  return true;
}

bool WalkMemory::walk(FrameState start) noexcept {
  Found at{start, nullptr};
  size_t known = count_;  // frames_[known - 1] is the next that could be met
  fresh_count_ = 0;
  KnownFrame* inside = &start_;
  cut_ = false;
  if (!window_.begin(start.sp)) return false;
  for (;;) {
    const FrameState& state = at.state;
    while (known > 0 && frames_[known - 1].state.sp < state.sp) --known;
    const FrameState* const met = known > 0 ? &frames_[known - 1].state : nullptr;
    if (met != nullptr && met->sp == state.sp && met->ip == state.ip && met->bp == state.bp) {
      frames_[known - 1].bp_from = at.bp_from;  // another way led here
      const size_t held = held_from(known - 1);
      if (held == 0) return keep(known);
      for (size_t i = known; i-- > held;) {
        if (!push(frames_[i].state, frames_[i].bp_from)) return false;
      }
      at = {frames_[held].state, frames_[held].bp_from};
      known = held;
      inside = &start_;
    } else if (!push(state, at.bp_from)) {
      return false;
    }
    const Step next = step(at, inside);
    if (next == Step::unreadable) cut_ = true;
    if (next == Step::end || cut_) return keep(0);
    if (next == Step::unknown) return false;
  }
}

StackWalk::StackWalk(FrameState start, uint64_t generation) noexcept
    : memory_(&memory_of_thread()), walked_(false) {
  if (memory_->taken.exchange(true, std::memory_order_acquire)) {
    memory_ = nullptr;
    return;
  }
  if (memory_->generation_ != generation) memory_->count_ = 0;
  memory_->generation_ = generation;
  walked_ = memory_->walk(start);
  if (!walked_) memory_->count_ = 0;
}

StackWalk::~StackWalk() {
  if (memory_ == nullptr) return;
  if (memory_->is_cut()) memory_->forget();
  memory_->taken.store(false, std::memory_order_release);
}

}  // namespace fragscope::shim
