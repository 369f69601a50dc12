#include "model/free_set.h"

#include <bit>

namespace fragscope::model {

uint32_t FreeSet::bin_of(uint64_t size) {
  const uint64_t units = size >> 9;
  if (units < kUnits) return static_cast<uint32_t>(units);
  const auto power = static_cast<uint32_t>(std::bit_width(units)) - 1;  // at least 6
  const auto within = static_cast<uint32_t>(units >> (power - 5)) % kPerPower;
  return kUnits + (power - 6) * kPerPower + within;
}

uint32_t FreeSet::next_bin(uint32_t bin) const {
  uint32_t word = bin / 64;
  if (word >= kWords) return kBins;
  uint64_t bits = used_[word] & (~uint64_t{0} << (bin % 64));
  while (bits == 0) {
    if (++word == kWords) return kBins;
    bits = used_[word];
  }
  return word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
}

uint32_t FreeSet::bin_before(uint32_t bin) const {
  uint32_t word = bin / 64;
  uint64_t bits = word < kWords ? used_[word] & ~(~uint64_t{0} << (bin % 64)) : 0;
  while (bits == 0) {
    if (word-- == 0) return kNone;
    bits = used_[word];
  }
  return word * 64 + 63 - static_cast<uint32_t>(std::countl_zero(bits));
}

FreeSet::Position FreeSet::first_of(uint32_t bin) const {
  return bin == kBins ? end() : Position{first_leaf_[bin], 0};
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

void FreeSet::insert(const FreeEntry& entry) {
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
  uint32_t slot = target.count++;
  for (; slot > 0 && entry < target.entries[slot - 1]; --slot) {
    target.entries[slot] = target.entries[slot - 1];
  }
  target.entries[slot] = entry;
  ++count_;
}

void FreeSet::erase(const FreeEntry& entry) {
  uint32_t leaf = first_leaf_[bin_of(entry.size)];
  while (leaves_[leaf].entries[leaves_[leaf].count - 1] < entry) leaf = leaves_[leaf].next;
  uint32_t slot = 0;
  while (leaves_[leaf].entries[slot].block != entry.block) ++slot;
  erase_at({leaf, slot});
}

void FreeSet::erase_at(Position at) {
  Leaf& target = leaves_[at.leaf];
  --target.count;
  --count_;
  for (uint32_t slot = at.slot; slot < target.count; ++slot) {
    target.entries[slot] = target.entries[slot + 1];
  }
  if (target.count == 0) drop_leaf(at.leaf);
}

FreeSet::Position FreeSet::lower_bound(uint64_t size) const {
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
