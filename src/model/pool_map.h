// The order in which PyTorch's maps of private pools (ska::flat_hash_map) are walked: a flush
// releases pools without users in this order. It depends on the ids, on the order in which they
// came and went, and on how large the map ever was.
//
// Robin Hood hashing over 2^bits slots, Fibonacci hashing, at most half full. An entry lies fewer
// than max_lookups() slots behind its own; the slots behind the last are there for that,
// and one more that ends every search.
//
// Threads: callers lock. Pure.
// Source of facts: c10/util/flat_hash_map.h, and runs of the released libraries.
#pragma once

#include <cstdint>
#include <vector>

#include "model/stats.h"

namespace fragscope::model {

class PoolMap {
 public:
  // `index` is the caller's name of the pool; none of the map has this id.
  void insert(PoolId id, uint32_t index);
  void erase(uint32_t index);  // nothing happens if it is not there
  bool contains(uint32_t index) const;
  std::vector<uint32_t> in_order() const;

 private:
  static constexpr int kNothing = -1;
  struct Slot {
    PoolId id;
    uint32_t index{};
    int distance = kNothing;  // from the slot of its own
  };

  size_t slot_count() const { return size_t{1} << bits_; }
  int max_lookups() const;
  bool is_full() const { return (size_ + 1) * 2 > slot_count(); }
  void grow();
  void settle(Slot entry);
  void push_on(size_t at, Slot displaced);

  std::vector<Slot> slots_;
  int bits_ = 0;
  size_t size_{};
};

}  // namespace fragscope::model
