// The free blocks of one (pool, stream), in the allocator's search order: size, then `tie` (the
// creation number, where TieRule has one), then address.
//
// Bins by size, 32 to a power of two, each a chain of small sorted leaves, and a bitmap of the bins
// in use: a search looks at one bin and at the next one in use. Real programs keep a few entries to
// a bin, so search, insertion and removal are a handful of loads. Positions die with every change.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
  // Puts `entry` in the place of the one at `at`, wherever it belongs.
  void replace(Position at, const FreeEntry& entry);
  Position find(const FreeEntry& entry) const;  // which must be there

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

// The quick ways are here so that the allocator has them without a call.

inline uint32_t FreeSet::bin_of(uint64_t size) {
  const uint64_t units = size >> 9;
  if (units < kUnits) return static_cast<uint32_t>(units);
  const auto power = static_cast<uint32_t>(std::bit_width(units)) - 1;  // at least 6
  const auto within = static_cast<uint32_t>(units >> (power - 5)) % kPerPower;
  return kUnits + (power - 6) * kPerPower + within;
}

inline uint32_t FreeSet::next_bin(uint32_t bin) const {
  uint32_t word = bin / 64;
  if (word >= kWords) return kBins;
  uint64_t bits = used_[word] & (~uint64_t{0} << (bin % 64));
  while (bits == 0) {
    if (++word == kWords) return kBins;
    bits = used_[word];
  }
  return word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
}

inline FreeSet::Position FreeSet::first_of(uint32_t bin) const {
  return bin == kBins ? end() : Position{first_leaf_[bin], 0};
}

inline void FreeSet::insert(const FreeEntry& entry) {
  if (first_leaf_.empty()) first_leaf_.assign(kBins, kNone);
  const uint32_t bin = bin_of(entry.size);
  uint32_t leaf = first_leaf_[bin];
  if (leaf == kNone) {
    leaf = new_leaf(bin, kNone);
    used_[bin / 64] |= uint64_t{1} << (bin % 64);
  } else {
    while (leaves_[leaf].next != kNone && leaves_[leaf].entries[leaves_[leaf].count - 1] < entry) {
      leaf = leaves_[leaf].next;
    }
    if (leaves_[leaf].count == kLeafEntries) {
      split_leaf(leaf);
      if (leaves_[leaf].entries[leaves_[leaf].count - 1] < entry) leaf = leaves_[leaf].next;
    }
  }
  Leaf& target = leaves_[leaf];
  uint32_t slot = target.count;
  while (slot > 0 && entry < target.entries[slot - 1]) --slot;
  FreeEntry* const at = target.entries + slot;
  if (slot < target.count) std::memmove(at + 1, at, (target.count - slot) * sizeof(FreeEntry));
  *at = entry;
  ++target.count;
  ++count_;
}

inline void FreeSet::erase_at(Position at) {
  Leaf& target = leaves_[at.leaf];
  --target.count;
  --count_;
  if (target.count == 0) return drop_leaf(at.leaf);
  FreeEntry* const gone = target.entries + at.slot;
  if (at.slot < target.count) {
    std::memmove(gone, gone + 1, (target.count - at.slot) * sizeof(FreeEntry));
  }
}

inline FreeSet::Position FreeSet::find(const FreeEntry& entry) const {
  uint32_t leaf = first_leaf_[bin_of(entry.size)];
  while (leaves_[leaf].entries[leaves_[leaf].count - 1] < entry) leaf = leaves_[leaf].next;
  uint32_t slot = 0;
  while (leaves_[leaf].entries[slot].block != entry.block) ++slot;
  return {leaf, slot};
}

inline void FreeSet::erase(const FreeEntry& entry) { erase_at(find(entry)); }

// Most often the order does not change: a block that shrinks or grows a little.
inline void FreeSet::replace(Position at, const FreeEntry& entry) {
  Leaf& leaf = leaves_[at.leaf];
  const bool above = at.slot > 0 ? leaf.entries[at.slot - 1] < entry : leaf.previous == kNone;
  const bool below =
      at.slot + 1 < leaf.count ? entry < leaf.entries[at.slot + 1] : leaf.next == kNone;
  if (above && below && bin_of(entry.size) == leaf.bin) {
    leaf.entries[at.slot] = entry;
    return;
  }
  erase_at(at);
  insert(entry);
}

inline FreeSet::Position FreeSet::lower_bound(uint64_t size) const {
  const uint32_t bin = bin_of(size);
  const uint32_t found = next_bin(bin);
  if (found != bin) return first_of(found);
  for (uint32_t leaf = first_leaf_[bin]; leaf != kNone; leaf = leaves_[leaf].next) {
    const Leaf& target = leaves_[leaf];
    if (target.entries[target.count - 1].size < size) continue;
    uint32_t slot = 0;
    while (target.entries[slot].size < size) ++slot;
    return {leaf, slot};
  }
  return first_of(next_bin(bin + 1));
}

}  // namespace fragscope::model
