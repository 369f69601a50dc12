#include "model/free_set.h"

#include <algorithm>

namespace fragscope::model {

uint32_t FreeSet::place_for(const FreeEntry& entry) const {
  const auto found = std::lower_bound(greatest_.begin(), greatest_.end(), entry);
  const auto place = static_cast<uint32_t>(found - greatest_.begin());
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
  FreeEntry* const at = std::lower_bound(target.entries, last, entry);
  std::copy_backward(at, last, last + 1);
  *at = entry;
  ++target.count;
  greatest_[place] = target.entries[target.count - 1];
  ++count_;
}

void FreeSet::erase(const FreeEntry& entry) {
  const uint32_t place = place_for(entry);
  Leaf& target = leaf(place);
  FreeEntry* const last = target.entries + target.count;
  FreeEntry* const at = std::lower_bound(target.entries, last, entry);
  std::copy(at + 1, last, at);
  --target.count;
  --count_;
  if (target.count == 0) {
    drop_leaf(place);
  } else {
    greatest_[place] = target.entries[target.count - 1];
  }
}

FreeSet::Position FreeSet::lower_bound(uint64_t size) const {
  const auto smaller = [](const FreeEntry& entry, uint64_t bytes) { return entry.size < bytes; };
  const auto found = std::lower_bound(greatest_.begin(), greatest_.end(), size, smaller);
  if (found == greatest_.end()) return end();
  const auto place = static_cast<uint32_t>(found - greatest_.begin());
  const Leaf& target = leaf(place);
  const FreeEntry* const at =
      std::lower_bound(target.entries, target.entries + target.count, size, smaller);
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
