// Follows a plan while a program runs: which offset in the plan's arena a request gets, or none.
//
// Requests are matched by their order: the next one of the step, of the same size and on the same
// stream as before, gets its planned place. A request that the plan does not expect gets none (the
// caller serves it otherwise), and after a few of those the follower is lost until the last
// kContext requests are those before one place of the plan alone, mostly at the start of the next
// step. It begins with the first request of the plan.
//
// Safe with any plan: a place is given only if it lies in the arena, touches no live block and no
// memory that another stream may still use. Streams are told apart by the caller's handles; those
// of the plan are only numbers.
//
// Pure. Units: bytes. Threads: one at a time. Errors: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "enforce/plan.h"

namespace fragscope::enforce {

class PlanFollower {
 public:
  // Requests that a place in the step is recognised by.
  static constexpr size_t kContext = 8;
  // Unexpected requests in a row, after which the next expected one proves nothing.
  static constexpr size_t kPatience = 32;
  static_assert(kContext > 0);

  // `plan` passed check_plan().
  explicit PlanFollower(Plan plan);

  // A request of `bytes` whose first use is on `stream`: its offset in the arena.
  std::optional<uint64_t> offer(uint64_t bytes, uint64_t stream);
  // The block at `offset` is free for work on its stream. False: no block is there.
  bool release(uint64_t offset);
  // No stream uses what was released before.
  void synchronized() { used_.clear(); }

  uint64_t arena_bytes() const { return plan_.arena_bytes; }
  bool synced() const { return synced_; }
  uint64_t live_bytes() const { return live_bytes_; }

  struct Counts {
    uint64_t offered = 0;
    uint64_t placed = 0;
    uint64_t unexpected = 0;  // not the request that the plan has next
    uint64_t unplanned = 0;   // expected, served otherwise by the plan's own word
    uint64_t occupied = 0;    // the place was not free: something lives longer than it did
    uint64_t resyncs = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Range {
    uint64_t bytes = 0;
    uint64_t stream = 0;
  };
  using Ranges = std::map<uint64_t, Range>;  // by offset, disjoint

  void index_places();
  void advance();
  bool matches(size_t position, uint64_t size, uint64_t stream) const;
  void remember(uint64_t size);
  uint64_t context_hash() const;
  bool find_place(uint64_t size);
  std::optional<uint64_t> place(size_t position, uint64_t stream);
  bool is_free(uint64_t offset, uint64_t bytes, uint64_t stream) const;
  void take_over(uint64_t offset, uint64_t bytes);

  Plan plan_;
  size_t next_ = 0;  // request expected next
  bool synced_ = true;
  size_t misses_ = 0;  // in a row
  // Places that the requests before them tell apart from all others: hash -> position.
  std::unordered_map<uint64_t, size_t> places_;
  std::vector<uint64_t> recent_;                  // sizes of the last requests, oldest first
  std::vector<std::optional<uint64_t>> streams_;  // the caller's handle of each of the plan's
  Ranges live_;
  Ranges used_;  // free, but last used by this stream, without a synchronisation since
  uint64_t live_bytes_ = 0;
  Counts counts_;
};

}  // namespace fragscope::enforce
