// The statistics that every request and free changes, in the form that costs least to keep: levels,
// their highest values and the sums of their rises. What PyTorch reports follows from them:
// freed = allocated - current, counted from the last reset, and active = allocated + waiting.
//
// Units: bytes and counts. Threads: none.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "model/stats.h"

namespace fragscope::model {

// A level, its highest value and, where it is asked for, the sum of its rises. Kept is how far the
// level is below the highest: a rise and the look whether it is a peak are one subtraction.
//
// `room` and `risen` are apart: beside one another the compiler makes rise() one vector of both,
// and loading that waits until the last fall(), a store to one of them, has left the processor.
struct Running {
  int64_t room = 0;  // the level is `high` less this
  int64_t high = 0;
  int64_t risen = 0;
  int64_t at_reset = 0;  // level when `risen` was 0

  int64_t now() const { return high - room; }
  void lift(int64_t amount) {  // the sum is kept elsewhere
    room -= amount;
    if (room < 0) [[unlikely]]
      reset_peak();
  }
  void rise(int64_t amount) {
    risen += amount;
    lift(amount);
  }
  void fall(int64_t amount) { room += amount; }
  void rise_or_fall(int64_t amount) {
    risen += std::max<int64_t>(amount, 0);
    lift(amount);
  }
  Stat stat() const { return {now(), high, risen, risen + at_reset - now()}; }
  void reset_peak() {
    high = now();
    room = 0;
  }
  void reset_accumulated() {
    risen = 0;
    at_reset = now();
  }
};

// Of blocks that are allocated, and of those that are active: they differ by the blocks that were
// freed while other streams still use them.
struct RunningBlocks {
  Running allocated;  // its peak: since `waiting` changed last; earlier ones are in the peaks here
  int64_t waiting = 0;
  int64_t allocated_peak = 0;
  int64_t active_peak = 0;
  int64_t waiting_at_reset = 0;

  // Blocks of `amount` are freed and wait; their wait ends.
  void begin_wait(int64_t amount);
  void end_wait(int64_t amount);
  Stat allocated_stat() const;
  Stat active_stat() const;
  void reset_peak();
  void reset_accumulated();

 private:
  void settle();
};

class RunningStats {
 public:
  // A block is allocated; is freed and comes back at once.
  void begin_block(PoolKind kind, uint64_t size, uint64_t requested) {
    Part& part = part_of(kind);
    part.count.allocated.rise(1);
    part.bytes.allocated.rise(static_cast<int64_t>(size));
    part.requested_bytes.rise(static_cast<int64_t>(requested));
    all_.count.allocated.lift(1);
    all_.bytes.allocated.lift(static_cast<int64_t>(size));
    all_.requested_bytes.lift(static_cast<int64_t>(requested));
  }
  void end_block(PoolKind kind, uint64_t size, uint64_t requested) {
    for (Part* part : {&part_of(kind), &all_}) {
      part->count.allocated.fall(1);
      part->bytes.allocated.fall(static_cast<int64_t>(size));
      part->requested_bytes.fall(static_cast<int64_t>(requested));
    }
  }
  // It is freed and waits for streams; its wait ends.
  void begin_wait(PoolKind kind, uint64_t size);
  void end_wait(PoolKind kind, uint64_t size, uint64_t requested);
  // Free blocks beside others: more of them, fewer, either.
  void begin_split(PoolKind kind, uint64_t bytes) {
    Part& part = part_of(kind);
    part.split_bytes.rise(static_cast<int64_t>(bytes));
    part.splits.rise(1);
    all_.split_bytes.lift(static_cast<int64_t>(bytes));
    all_.splits.lift(1);
  }
  void lessen_splits(PoolKind kind, uint64_t bytes, int64_t count) {
    for (Part* part : {&part_of(kind), &all_}) {
      part->split_bytes.fall(static_cast<int64_t>(bytes));
      part->splits.fall(count);
    }
  }
  void change_splits(PoolKind kind, int64_t bytes, int64_t count) {
    Part& part = part_of(kind);
    part.split_bytes.rise_or_fall(bytes);
    part.splits.rise_or_fall(count);
    all_.split_bytes.lift(bytes);
    all_.splits.lift(count);
  }

  uint64_t allocated_bytes() const { return static_cast<uint64_t>(all_.bytes.allocated.now()); }
  void tell(DeviceStats& stats) const;
  void reset_peaks();
  void reset_accumulated();

 private:
  struct Part {
    RunningBlocks count;
    RunningBlocks bytes;
    Running requested_bytes;
    Running splits;
    Running split_bytes;
  };
  Part& part_of(PoolKind kind) { return kinds_[static_cast<size_t>(kind)]; }
  template <typename Call>
  void for_each(Call&& call);

  std::array<Part, 2> kinds_;  // by PoolKind
  Part all_;                   // without sums of rises: those are the kinds' together
};

}  // namespace fragscope::model
