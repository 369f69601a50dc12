#include "model/pool_map.h"

#include <algorithm>
#include <utility>

namespace fragscope::model {

int PoolMap::max_lookups() const { return std::max(4, bits_); }

void PoolMap::insert(PoolId id, uint32_t index) { settle({id, index, kNothing}); }

// Behind all that lie at least as far from their own slots.
void PoolMap::settle(Slot entry) {
  if (is_full()) {
    grow();
    return settle(entry);
  }
  entry.distance = 0;
  size_t at = entry.id.slot_in_map(bits_);
  for (; slots_[at].distance >= entry.distance; ++at) ++entry.distance;
  if (entry.distance >= max_lookups()) {
    grow();
    return settle(entry);
  }
  const Slot displaced = std::exchange(slots_[at], entry);
  ++size_;
  if (displaced.distance != kNothing) push_on(at, displaced);
}

// What lay at `at` moves on, as may others in turn. If one would come too far, the one that nobody
// has a place for takes the slot of the entry that came last, which is entered anew into more
// slots.
void PoolMap::push_on(const size_t at, Slot displaced) {
  ++displaced.distance;
  for (size_t to = at + 1;; ++to) {
    if (slots_[to].distance == kNothing) {
      slots_[to] = displaced;
      return;
    }
    if (slots_[to].distance < displaced.distance) {
      std::swap(slots_[to], displaced);
      ++displaced.distance;
      continue;
    }
    if (++displaced.distance < max_lookups()) continue;
    std::swap(slots_[at], displaced);
    grow();
    return settle(displaced);
  }
}

// Twice the slots, at least four; entries come in the order of the old ones.
void PoolMap::grow() {
  const std::vector<Slot> old = std::exchange(slots_, {});
  bits_ = std::max(2, bits_ + 1);
  slots_.resize(slot_count() + static_cast<size_t>(max_lookups()));
  size_ = 0;
  for (const Slot& slot : old) {
    if (slot.distance != kNothing) settle(slot);
  }
}

bool PoolMap::contains(uint32_t index) const {
  const std::vector<uint32_t> all = in_order();
  return std::find(all.begin(), all.end(), index) != all.end();
}

// Those that lie behind, and not in their own slots, move up.
void PoolMap::erase(uint32_t index) {
  const auto at = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.distance != kNothing && slot.index == index;
  });
  if (at == slots_.end()) return;
  --size_;
  at->distance = kNothing;
  for (auto free = at; (free + 1)->distance > 0; ++free) {
    *free = *(free + 1);
    --free->distance;
    (free + 1)->distance = kNothing;
  }
}

std::vector<uint32_t> PoolMap::in_order() const {
  std::vector<uint32_t> order;
  for (const Slot& slot : slots_) {
    if (slot.distance != kNothing) order.push_back(slot.index);
  }
  return order;
}

}  // namespace fragscope::model
