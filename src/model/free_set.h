// The free blocks of one (pool, stream), in the allocator's search order: size, then `tie` (address
// or creation number by TieRule), then address.
//
// A sequence of small sorted leaves: search is two binary searches in contiguous memory, insertion
// and removal move at most one leaf. Positions die with every change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/block.h"

namespace fragscope::model {

struct FreeEntry {
  uint64_t size = 0;
  uint64_t tie = 0;
  uint64_t address = 0;
  BlockIndex block = kNone;

  // Without branches: the outcomes are random to a branch predictor.
  bool operator<(const FreeEntry& other) const {
    const bool tie_less = (tie < other.tie) | ((tie == other.tie) & (address < other.address));
    return (size < other.size) | ((size == other.size) & tie_less);
  }
};

class FreeSet {
 public:
  struct Position {
    uint32_t leaf = 0;  // place in `order_`
    uint32_t slot = 0;
    bool operator==(const Position&) const = default;
  };

  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }

  void insert(const FreeEntry& entry);
  // The entry must be there.
  void erase(const FreeEntry& entry);
  void erase_at(Position at);

  // First entry of at least `size` bytes; end() if none.
  Position lower_bound(uint64_t size) const;
  Position begin() const { return {}; }
  Position end() const { return {static_cast<uint32_t>(order_.size()), 0}; }
  Position after(Position at) const;
  Position before(Position at) const;  // `at` is not begin()
  const FreeEntry& at(Position at) const { return leaf(at.leaf).entries[at.slot]; }

 private:
  static constexpr uint32_t kLeafEntries = 32;
  struct Leaf {
    uint32_t count = 0;
    FreeEntry entries[kLeafEntries];
  };
  const Leaf& leaf(uint32_t place) const { return leaves_[order_[place]]; }
  Leaf& leaf(uint32_t place) { return leaves_[order_[place]]; }
  // First leaf whose greatest entry is not below `entry`; the last leaf if there is none.
  uint32_t place_for(const FreeEntry& entry) const;
  static uint32_t slot_for(const Leaf& target, const FreeEntry& entry);
  void split_leaf(uint32_t place);
  void drop_leaf(uint32_t place);

  std::vector<FreeEntry> greatest_;  // of each leaf, in order
  std::vector<uint32_t> order_;      // leaves in order
  std::vector<Leaf> leaves_;
  std::vector<uint32_t> unused_;
  size_t count_ = 0;
};

}  // namespace fragscope::model
