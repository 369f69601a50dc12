// In which order were the segments made that were there when recording began? From 2.12 on it
// decides between equally large free blocks, and a snapshot does not tell it. Where the recorded
// allocator chose between two of them, the choice does.
//
// Threads: one at a time. Errors: none; a choice that contradicts earlier ones is not taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fragscope::replay {

// `first` is the older segment; addresses.
using SegmentChoice = std::pair<uint64_t, uint64_t>;

class StartOrder {
 public:
  // The segments, in the order that is assumed as long as nothing is known.
  void reset(std::vector<uint64_t> addresses, const std::vector<SegmentChoice>& known);
  // False: not two of the segments, known already, or against earlier choices.
  bool learn(SegmentChoice choice);
  // Oldest first.
  std::vector<uint64_t> order() const;
  const std::vector<SegmentChoice>& choices() const { return choices_; }

 private:
  bool follows(size_t younger, size_t older) const;

  std::vector<uint64_t> addresses_;
  std::unordered_map<uint64_t, size_t> index_;
  std::vector<std::vector<size_t>> younger_;  // by index: those known to be younger
  std::vector<SegmentChoice> choices_;
};

}  // namespace fragscope::replay
