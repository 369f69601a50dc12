#include "model/free_set.h"

#include <bit>

namespace fragscope::model {

uint32_t FreeSet::bin_before(uint32_t bin) const {
  uint32_t word = bin / 64;
  uint64_t bits = word < kWords ? used_[word] & ~(~uint64_t{0} << (bin % 64)) : 0;
  while (bits == 0) {
    if (word-- == 0) return kNone;
    bits = used_[word];
  }
  return word * 64 + 63 - static_cast<uint32_t>(std::countl_zero(bits));
}

FreeSet::Position FreeSet::last_of(uint32_t bin) const {
  uint32_t leaf = first_leaf_[bin];
  while (leaves_[leaf].next != kNone) leaf = leaves_[leaf].next;
  return {leaf, leaves_[leaf].count - 1};
}

// An empty leaf of `bin` behind `previous`, or the bin's first one.
uint32_t FreeSet::new_leaf(uint32_t bin, uint32_t previous) {
  uint32_t leaf = 0;
  if (unused_.empty()) {
    leaf = static_cast<uint32_t>(leaves_.size());
    leaves_.emplace_back();
  } else {
    leaf = unused_.back();
    unused_.pop_back();
  }
  uint32_t& link = previous == kNone ? first_leaf_[bin] : leaves_[previous].next;
  Leaf& fresh = leaves_[leaf];
  fresh.count = 0;
  fresh.bin = bin;
  fresh.previous = previous;
  fresh.next = link;
  if (link != kNone) leaves_[link].previous = leaf;
  link = leaf;
  return leaf;
}

void FreeSet::drop_leaf(uint32_t leaf) {
  const Leaf& gone = leaves_[leaf];
  if (gone.next != kNone) leaves_[gone.next].previous = gone.previous;
  if (gone.previous != kNone) {
    leaves_[gone.previous].next = gone.next;
  } else {
    first_leaf_[gone.bin] = gone.next;
    if (gone.next == kNone) used_[gone.bin / 64] &= ~(uint64_t{1} << (gone.bin % 64));
  }
  unused_.push_back(leaf);
}

void FreeSet::split_leaf(uint32_t leaf) {
  const uint32_t fresh = new_leaf(leaves_[leaf].bin, leaf);
  Leaf& low = leaves_[leaf];
  Leaf& high = leaves_[fresh];
  constexpr uint32_t kHalf = kLeafEntries / 2;
  for (uint32_t slot = kHalf; slot < low.count; ++slot) {
    high.entries[high.count++] = low.entries[slot];
  }
  low.count = kHalf;
}

FreeSet::Position FreeSet::after(Position at) const {
  const Leaf& leaf = leaves_[at.leaf];
  if (at.slot + 1 < leaf.count) return {at.leaf, at.slot + 1};
  if (leaf.next != kNone) return {leaf.next, 0};
  return first_of(next_bin(leaf.bin + 1));
}

FreeSet::Position FreeSet::before(Position at) const {
  if (at.leaf == kNone) return last_of(bin_before(kBins));
  if (at.slot > 0) return {at.leaf, at.slot - 1};
  const Leaf& leaf = leaves_[at.leaf];
  if (leaf.previous != kNone) return {leaf.previous, leaves_[leaf.previous].count - 1};
  return last_of(bin_before(leaf.bin));
}

}  // namespace fragscope::model
