#include "model/free_set.h"

#include <algorithm>

namespace fragscope::model {

namespace {

// std::lower_bound whose steps are conditional moves.
template <typename Less>
const FreeEntry* first_not_less(const FreeEntry* first, size_t count, Less less) {
  while (count > 1) {
    const size_t half = count / 2;
    first += less(first[half - 1]) ? half : 0;
    count -= half;
  }
  return first + (count == 1 && less(*first) ? 1 : 0);
}

}  // namespace

uint32_t FreeSet::place_for(const FreeEntry& entry) const {
  const FreeEntry* found = first_not_less(greatest_.data(), greatest_.size(),
                                          [&](const FreeEntry& other) { return other < entry; });
  const auto place = static_cast<uint32_t>(found - greatest_.data());
  return std::min(place, static_cast<uint32_t>(greatest_.size()) - 1);
}

void FreeSet::split_leaf(uint32_t place) {
  uint32_t fresh = 0;
  if (unused_.empty()) {
    fresh = static_cast<uint32_t>(leaves_.size());
    leaves_.emplace_back();
  } else {
    fresh = unused_.back();
    unused_.pop_back();
  }
  Leaf& low = leaf(place);
  Leaf& high = leaves_[fresh];
  constexpr uint32_t kHalf = kLeafEntries / 2;
  std::copy(low.entries + kHalf, low.entries + low.count, high.entries);
  high.count = low.count - kHalf;
  low.count = kHalf;
  order_.insert(order_.begin() + place + 1, fresh);
  greatest_.insert(greatest_.begin() + place, low.entries[kHalf - 1]);
}

void FreeSet::drop_leaf(uint32_t place) {
  unused_.push_back(order_[place]);
  order_.erase(order_.begin() + place);
  greatest_.erase(greatest_.begin() + place);
}

void FreeSet::insert(const FreeEntry& entry) {
  if (order_.empty()) {
    if (unused_.empty()) {
      unused_.push_back(static_cast<uint32_t>(leaves_.size()));
      leaves_.emplace_back();
    }
    order_.push_back(unused_.back());
    unused_.pop_back();
    leaf(0).count = 0;
    greatest_.push_back(entry);
  }
  uint32_t place = place_for(entry);
  if (leaf(place).count == kLeafEntries) {
    split_leaf(place);
    if (greatest_[place] < entry) ++place;
  }
  Leaf& target = leaf(place);
  FreeEntry* const last = target.entries + target.count;
  FreeEntry* const at = target.entries + slot_for(target, entry);
  std::copy_backward(at, last, last + 1);
  *at = entry;
  ++target.count;
  greatest_[place] = target.entries[target.count - 1];
  ++count_;
}

void FreeSet::erase(const FreeEntry& entry) {
  const uint32_t place = place_for(entry);
  erase_at({place, slot_for(leaf(place), entry)});
}

void FreeSet::erase_at(Position at) {
  Leaf& target = leaf(at.leaf);
  FreeEntry* const gone = target.entries + at.slot;
  std::copy(gone + 1, target.entries + target.count, gone);
  --target.count;
  --count_;
  if (target.count == 0) {
    drop_leaf(at.leaf);
  } else {
    greatest_[at.leaf] = target.entries[target.count - 1];
  }
}

uint32_t FreeSet::slot_for(const Leaf& target, const FreeEntry& entry) {
  const FreeEntry* at = first_not_less(target.entries, target.count,
                                       [&](const FreeEntry& other) { return other < entry; });
  return static_cast<uint32_t>(at - target.entries);
}

FreeSet::Position FreeSet::lower_bound(uint64_t size) const {
  const auto smaller = [size](const FreeEntry& entry) { return entry.size < size; };
  const FreeEntry* found = first_not_less(greatest_.data(), greatest_.size(), smaller);
  const auto place = static_cast<uint32_t>(found - greatest_.data());
  if (place == greatest_.size()) return end();
  const Leaf& target = leaf(place);
  const FreeEntry* at = first_not_less(target.entries, target.count, smaller);
  return {place, static_cast<uint32_t>(at - target.entries)};
}

FreeSet::Position FreeSet::after(Position at) const {
  if (at.slot + 1 < leaf(at.leaf).count) return {at.leaf, at.slot + 1};
  return {at.leaf + 1, 0};
}

FreeSet::Position FreeSet::before(Position at) const {
  if (at.slot > 0) return {at.leaf, at.slot - 1};
  return {at.leaf - 1, leaf(at.leaf - 1).count - 1};
}

}  // namespace fragscope::model
