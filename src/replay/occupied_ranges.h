// Which addresses are taken when: a segment tree over time whose nodes hold sets of address ranges.
//
// Ranges that touch are one, so that a well-packed plan keeps few of them per node, and placing a
// block looks at a few dozen ranges whatever the number of blocks.
// Units: bytes; times are small numbers. Threads: one at a time.
#pragma once

#include <cstdint>
#include <vector>

namespace fragscope::replay {

class OccupiedRanges {
 public:
  // Times are 0 … end - 1.
  explicit OccupiedRanges(uint32_t end);

  // Nothing is taken any more.
  void clear();

  // Takes the lowest `size` bytes that are free during [from, to); their address.
  uint64_t place(uint32_t from, uint32_t to, uint64_t size);

 private:
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  using Ranges = std::vector<Range>;  // disjoint, not touching, ascending
  struct Node {
    Ranges all_along;  // taken during all of the node's time
    Ranges sometimes;  // taken by nodes below, at some time
  };

  void collect(uint32_t from, uint32_t to);
  void take(uint32_t from, uint32_t to, Range range);
  uint64_t lowest_gap(uint64_t size);
  static void add(Ranges& ranges, Range range);

  uint32_t leaves_;
  std::vector<Node> nodes_;  // 1 is the root, 2n and 2n + 1 are below n
  Ranges found_;
};

}  // namespace fragscope::replay
