// The free blocks of one (pool, stream), in the allocator's search order: size, then `number` (the
// creation number, where TieRule has one, else 0), then address.
//
// Bins by size, 8 to a power of two, each a sorted chain through the blocks themselves, and a
// bitmap of the bins in use: a search looks at one bin and at the next one in use. Heads of bins
// are kept for the sizes that have occurred and those between: a few powers of two. Real programs
// keep a few blocks to a bin, so search, insertion and removal are a handful of loads. A bin in
// which a walk becomes long is a search tree from then on, until it is empty.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "model/block.h"

namespace fragscope::model {

// Place of a free block in the order.
struct FreeEntry {
  uint64_t size = 0;
  uint64_t address = 0;
  uint32_t tie = 0;
  BlockIndex block = kNone;

  bool operator<(const FreeEntry& other) const { return order() < other.order(); }

 private:
  std::tuple<uint64_t, uint32_t, uint64_t> order() const { return {size, tie, address}; }
};

class FreeSet {
 public:
  bool empty() const { return used_words_ == 0; }

  // All calls name the slab that the blocks are in: always the same one. What a block is sorted by
  // changes by shrink() and grow() alone while it is in the set.
  void insert(Block* slab, BlockIndex index) { insert(slab, index, bin_of(slab[index].size)); }
  void erase(Block* slab, BlockIndex index) { erase(slab, index, bin_of(slab[index].size)); }
  // It now is `size` bytes at `address`, more than before, and has that creation number.
  void grow(Block* slab, BlockIndex index, uint64_t address, uint64_t size, uint32_t number);

  // A block of the set and the bin that it is in, so that nobody has to work it out again.
  struct Found {
    BlockIndex block = kNone;
    uint32_t bin = 0;
  };
  // First block of at least `size` bytes; kNone if there is none. A long walk makes a tree of the
  // bin, lower_bound() leaves it as it is.
  Found search(Block* slab, uint64_t size);
  BlockIndex lower_bound(const Block* slab, uint64_t size) const;
  Found found(const Block* slab, BlockIndex index) const {
    return {index, bin_of(slab[index].size)};
  }
  void erase(Block* slab, Found found) { erase(slab, found.block, found.bin); }
  // It now is `size` bytes at `address`: fewer than before.
  void shrink(Block* slab, Found found, uint64_t address, uint64_t size);

  BlockIndex first() const { return first_of(next_bin(0)); }
  BlockIndex last(const Block* slab) const { return last_of(slab, bin_before(kBins)); }
  // Its neighbours in the order; kNone at the ends.
  BlockIndex after(const Block* slab, BlockIndex index) const;
  BlockIndex before(const Block* slab, BlockIndex index) const;

  size_t bytes() const;  // of memory beside the blocks

 private:
  static constexpr uint32_t kUnits = 16;    // sizes below 16 · 512 bytes have bins of their own
  static constexpr uint32_t kPerPower = 8;  // bins to a power of two above
  static constexpr uint32_t kBins = kUnits + 51 * kPerPower;
  static constexpr uint32_t kWords = (kBins + 63) / 64;
  static_assert(kBins < kWords * 64);  // next_bin() may be asked for what is behind the last one
  static constexpr BlockIndex kTree = kNone - 1;  // in the place of a link: the bin is a tree
  static constexpr uint32_t kLongWalk = 64;       // tuning: when a chain becomes a tree
  using Tree = std::set<FreeEntry>;

  static constexpr uint32_t bin_of(uint64_t size);
  static FreeEntry entry_of(const Block* slab, BlockIndex index) {
    const Block& block = slab[index];
    return {block.size, block.address, block.number, index};
  }
  static bool precedes(const Block& left, const Block& right) {
    if (left.size != right.size) return left.size < right.size;
    return left.number != right.number ? left.number < right.number : left.address < right.address;
  }
  // First bin in use from `bin` on, last one before `bin`; kBins, kNone if there is none.
  uint32_t next_bin(uint32_t bin) const;
  uint32_t bin_before(uint32_t bin) const;
  BlockIndex first_of(uint32_t bin) const;
  BlockIndex last_of(const Block* slab, uint32_t bin) const;
  BlockIndex& head_of(uint32_t bin) { return heads_[bin - first_bin_]; }
  const BlockIndex& head_of(uint32_t bin) const { return heads_[bin - first_bin_]; }
  void reach(uint32_t bin);
  void mark(uint32_t bin) {
    used_[bin / 64] |= uint64_t{1} << (bin % 64);
    used_words_ |= uint32_t{1} << (bin / 64);
  }
  void unmark(uint32_t bin) {
    if ((used_[bin / 64] &= ~(uint64_t{1} << (bin % 64))) == 0) {
      used_words_ &= ~(uint32_t{1} << (bin / 64));
    }
  }
  void insert(Block* slab, BlockIndex index, uint32_t bin);
  void erase(Block* slab, BlockIndex index, uint32_t bin);
  void insert_among(Block* slab, BlockIndex index, uint32_t bin);
  void plant(Block* slab, uint32_t bin);
  void insert_in_tree(Block* slab, BlockIndex index, uint32_t bin);
  void erase_from_tree(Block* slab, BlockIndex index);
  BlockIndex search_tree(uint32_t bin, uint64_t size) const;

  std::array<uint64_t, kWords> used_{};  // bins in use
  uint32_t used_words_ = 0;              // words of it that are not 0
  uint32_t first_bin_{};                 // the bins that there are heads of: from here on,
  uint32_t bins_ = 0;                    // so many
  std::vector<BlockIndex> heads_;        // first block of each, or kTree
  std::unique_ptr<std::map<uint32_t, Tree>> trees_;  // by bin; made by the first one
};

// The quick ways are here so that the allocator has them without a call.

FRAGSCOPE_HOT constexpr uint32_t FreeSet::bin_of(uint64_t size) {
  // tuning: how fine the bins are
  const uint64_t units = size >> 9;
  // tuning: the same
  const auto shift = static_cast<uint32_t>(std::bit_width(units | (kUnits - 1))) - 4;
  return shift * kPerPower + static_cast<uint32_t>(units >> shift);
}

FRAGSCOPE_HOT uint32_t FreeSet::next_bin(uint32_t bin) const {
  static_assert(bin_of(UINT64_MAX) + 1 == kBins);
  const uint32_t word = bin / 64;
  const uint64_t bits = used_[word] >> (bin % 64);
  if (bits != 0) return bin + static_cast<uint32_t>(__builtin_ctzll(bits));
  const uint32_t words = used_words_ & (~uint32_t{1} << word);
  if (words == 0) return kBins;
  const auto next = static_cast<uint32_t>(__builtin_ctz(words));
  return next * 64 + static_cast<uint32_t>(__builtin_ctzll(used_[next]));
}

FRAGSCOPE_HOT BlockIndex FreeSet::first_of(uint32_t bin) const {
  if (bin == kBins) return kNone;
  const BlockIndex head = head_of(bin);
  return head != kTree ? head : trees_->at(bin).begin()->block;
}

FRAGSCOPE_HOT void FreeSet::insert(Block* slab, BlockIndex index, uint32_t bin) {
  Block& block = slab[index];
  block.free = true;
  if (bin - first_bin_ >= bins_) [[unlikely]]
    reach(bin);
  BlockIndex& head = head_of(bin);
  if (head != kNone) return insert_among(slab, index, bin);
  block.free_previous = block.free_next = kNone;
  head = index;
  mark(bin);
}

FRAGSCOPE_HOT void FreeSet::erase(Block* slab, BlockIndex index, uint32_t bin) {
  Block& block = slab[index];
  block.free = false;
  const BlockIndex next = block.free_next;
  if (block.free_previous < kTree) {
    slab[block.free_previous].free_next = next;
    if (next != kNone) slab[next].free_previous = block.free_previous;
    return;
  }
  if (block.free_previous == kTree) [[unlikely]]
    return erase_from_tree(slab, index);
  head_of(bin) = next;
  if (next != kNone) {
    slab[next].free_previous = kNone;
  } else {
    unmark(bin);
  }
}

// Most often a block that shrinks or grows a little keeps its place.
FRAGSCOPE_HOT void FreeSet::shrink(Block* slab, Found found, uint64_t address, uint64_t size) {
  Block& block = slab[found.block];
  const uint32_t bin = bin_of(size);
  if (bin == found.bin && block.free_previous == kNone) {
    block.address = address;
    block.size = size;
    return;
  }
  erase(slab, found);
  block.address = address;
  block.size = size;
  insert(slab, found.block, bin);
}

FRAGSCOPE_HOT void FreeSet::grow(Block* slab, BlockIndex index, uint64_t address, uint64_t size,
                                 uint32_t number) {
  Block& block = slab[index];
  const uint32_t before = bin_of(block.size);
  const uint32_t bin = bin_of(size);
  const bool stays = bin == before && block.free_next == kNone;
  if (!stays) erase(slab, index, before);
  block.address = address;
  block.size = size;
  block.number = number;
  if (!stays) insert(slab, index, bin);
}

FRAGSCOPE_HOT FreeSet::Found FreeSet::search(Block* slab, uint64_t size) {
  const uint32_t own = bin_of(size);
  const uint32_t bin = next_bin(own);
  if (bin != own) return {first_of(bin), bin};
  BlockIndex at = head_of(bin);
  if (at != kTree) [[likely]] {
    uint32_t steps = 0;  // tuning: when a chain becomes a tree
    do {
      if (slab[at].size >= size) return {at, bin};
      at = slab[at].free_next;
      // tuning: a long walk ends in a tree
    } while (at != kNone && ++steps != kLongWalk);
    if (at != kNone) [[unlikely]] {
      plant(slab, bin);
      at = kTree;
    }
  }
  if (at == kTree) [[unlikely]] {
    at = search_tree(bin, size);
    if (at != kNone) return {at, bin};
  }
  const uint32_t next = next_bin(bin + 1);
  return {first_of(next), next};
}

}  // namespace fragscope::model
