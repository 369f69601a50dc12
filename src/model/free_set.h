// The free blocks of one (pool, stream), in the allocator's search order: size, then `tie` (the
// creation number, where TieRule has one), then address.
//
// Bins by size, 32 to a power of two, each a chain of small sorted leaves, and a bitmap of the bins
// in use: a search looks at one bin and at the next one in use. Real programs keep a few entries to
// a bin, so search, insertion and removal are a handful of loads. Positions die with every change.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/block.h"

namespace fragscope::model {

struct FreeEntry {
  uint64_t size = 0;
  uint64_t address = 0;
  uint32_t tie = 0;
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
    uint32_t leaf = kNone;  // kNone: the end
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
  Position begin() const { return first_of(next_bin(0)); }
  Position end() const { return {}; }
  Position after(Position at) const;
  Position before(Position at) const;  // `at` is not begin()
  const FreeEntry& at(Position at) const { return leaves_[at.leaf].entries[at.slot]; }

 private:
  static constexpr uint32_t kLeafEntries = 20;
  static constexpr uint32_t kUnits = 64;     // sizes below 64 · 512 bytes have bins of their own
  static constexpr uint32_t kPerPower = 32;  // bins to a power of two above
  static constexpr uint32_t kBins = kUnits + 49 * kPerPower;
  static constexpr uint32_t kWords = (kBins + 63) / 64;
  struct Leaf {
    uint32_t count = 0;
    uint32_t bin = 0;
    uint32_t previous = kNone;  // in the same bin
    uint32_t next = kNone;
    FreeEntry entries[kLeafEntries];
  };

  static uint32_t bin_of(uint64_t size);
  // First bin in use from `bin` on, last one before `bin`; kBins, kNone if there is none.
  uint32_t next_bin(uint32_t bin) const;
  uint32_t bin_before(uint32_t bin) const;
  Position first_of(uint32_t bin) const;
  Position last_of(uint32_t bin) const;
  uint32_t new_leaf(uint32_t bin, uint32_t previous);
  void drop_leaf(uint32_t leaf);
  void split_leaf(uint32_t leaf);

  std::vector<uint32_t> first_leaf_;     // of each bin; empty before the first insertion
  std::array<uint64_t, kWords> used_{};  // bins in use
  std::vector<Leaf> leaves_;
  std::vector<uint32_t> unused_;
  size_t count_ = 0;
};

}  // namespace fragscope::model
