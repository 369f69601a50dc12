#include "model/free_set.h"

#include <algorithm>
#include <iterator>

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

BlockIndex FreeSet::search_tree(uint32_t bin, uint64_t size) const {
  const Tree& tree = trees_->at(bin);
  const auto place = tree.lower_bound({size, 0, 0, kNone});
  return place != tree.end() ? place->block : kNone;
}

BlockIndex FreeSet::lower_bound(const Block* slab, uint64_t size) const {
  const uint32_t own = bin_of(size);
  const uint32_t bin = next_bin(own);
  if (bin != own) return first_of(bin);
  BlockIndex at = head_of(bin);
  if (at == kTree) at = search_tree(bin, size);
  while (at != kNone && slab[at].size < size) at = slab[at].free_next;
  return at != kNone ? at : first_of(next_bin(bin + 1));
}

// There are heads for whole powers of two from the smallest bin ever used to the largest.
void FreeSet::reach(uint32_t bin) {
  const uint32_t power = bin / kPerPower * kPerPower;
  if (bins_ == 0) first_bin_ = power;
  if (power < first_bin_) {
    heads_.insert(heads_.begin(), first_bin_ - power, kNone);
    first_bin_ = power;
  }
  const uint32_t wanted =
      std::max(power + kPerPower - first_bin_, static_cast<uint32_t>(heads_.size()));
  heads_.resize(wanted, kNone);
  heads_.shrink_to_fit();
  bins_ = wanted;
}

BlockIndex FreeSet::last_of(const Block* slab, uint32_t bin) const {
  if (bin == kNone) return kNone;
  BlockIndex at = head_of(bin);
  if (at == kTree) return trees_->at(bin).rbegin()->block;
  while (slab[at].free_next != kNone) at = slab[at].free_next;
  return at;
}

BlockIndex FreeSet::after(const Block* slab, BlockIndex index) const {
  const Block& block = slab[index];
  const uint32_t bin = bin_of(block.size);
  if (block.free_previous == kTree) {
    const Tree& tree = trees_->at(bin);
    const auto next = tree.upper_bound(entry_of(slab, index));
    if (next != tree.end()) return next->block;
  } else if (block.free_next != kNone) {
    return block.free_next;
  }
  return first_of(next_bin(bin + 1));
}

BlockIndex FreeSet::before(const Block* slab, BlockIndex index) const {
  const Block& block = slab[index];
  const uint32_t bin = bin_of(block.size);
  if (block.free_previous == kTree) {
    const Tree& tree = trees_->at(bin);
    const auto at = tree.find(entry_of(slab, index));
    if (at != tree.begin()) return std::prev(at)->block;
  } else if (block.free_previous != kNone) {
    return block.free_previous;
  }
  return last_of(slab, bin_before(bin));
}

// `bin` is not empty.
void FreeSet::insert_among(Block* slab, BlockIndex index, uint32_t bin) {
  if (head_of(bin) == kTree) return insert_in_tree(slab, index, bin);
  Block& block = slab[index];
  BlockIndex before = kNone;
  BlockIndex at = head_of(bin);
  uint32_t steps = 0;
  while (at != kNone && precedes(slab[at], block)) {
    before = at;
    at = slab[at].free_next;
    ++steps;
  }
  block.free_previous = before;
  block.free_next = at;
  if (at != kNone) slab[at].free_previous = index;
  (before != kNone ? slab[before].free_next : head_of(bin)) = index;
  if (steps > kLongWalk) plant(slab, bin);  // tuning: a tree for the next walk
}

// The chain of `bin` becomes a tree.
void FreeSet::plant(Block* slab, uint32_t bin) {
  BlockIndex at = head_of(bin);
  head_of(bin) = kTree;
  while (at != kNone) {
    const BlockIndex next = slab[at].free_next;
    insert_in_tree(slab, at, bin);
    at = next;
  }
}

void FreeSet::insert_in_tree(Block* slab, BlockIndex index, uint32_t bin) {
  Block& block = slab[index];
  block.free_previous = block.free_next = kTree;
  if (trees_ == nullptr) trees_ = std::make_unique<std::map<uint32_t, Tree>>();
  (*trees_)[bin].insert(entry_of(slab, index));
}

void FreeSet::erase_from_tree(Block* slab, BlockIndex index) {
  const uint32_t bin = bin_of(slab[index].size);
  const auto tree = trees_->find(bin);
  tree->second.erase(entry_of(slab, index));
  if (!tree->second.empty()) return;
  head_of(bin) = kNone;
  unmark(bin);
}

size_t FreeSet::bytes() const {
  constexpr size_t kNode = sizeof(FreeEntry) + 4 * sizeof(void*);  // of a tree
  size_t bytes = heads_.capacity() * sizeof(BlockIndex);
  if (trees_ == nullptr) return bytes;
  for (const auto& [bin, tree] : *trees_) bytes += tree.size() * kNode;
  return bytes;
}

}  // namespace fragscope::model
