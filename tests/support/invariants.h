// Checks of the allocator's whole state, for tests: slow, touches every block.
#pragma once

#include <algorithm>
#include <set>
#include <string>

#include "model/caching_allocator.h"

namespace fragscope::model {

struct Recount {
  int64_t allocation[2] = {};
  int64_t allocated_bytes[2] = {};
  int64_t active[2] = {};
  int64_t active_bytes[2] = {};
  int64_t requested_bytes[2] = {};
  int64_t inactive_split[2] = {};
  int64_t inactive_split_bytes[2] = {};
  int64_t segment[2] = {};
  int64_t reserved_bytes[2] = {};
};

inline std::string at(const Block& block, const char* text) {
  return std::string(text) + " at address " + std::to_string(block.address);
}

class InvariantCheck {
 public:
  // What book_bytes() has to tell, added up part by part.
  static size_t count_books(const CachingAllocator& a) {
    size_t bytes = a.blocks_.bytes();
    const auto add = [&](const auto& vector) {
      bytes += vector.capacity() * sizeof(*vector.data());
    };
    add(a.arenas_);
    add(a.ranges_);
    for (const auto& pool : a.pools_) add(pool.arenas);
    for (const auto& arena : a.arenas_) {
      bytes += arena.free.bytes();
      add(arena.unmapped);
    }
    return bytes;
  }

  explicit InvariantCheck(const CachingAllocator& allocator) : a_(allocator) {}

  std::string run() {
    for (BlockIndex i = 0; i < a_.blocks_.limit(); ++i) {
      if (!a_.blocks_[i].in_use) continue;
      ++blocks_;
      std::string broken = check_links(i);
      if (broken.empty()) broken = check_state(i);
      if (!broken.empty()) return broken;
      count(a_.blocks_[i]);
    }
    std::string broken = check_sets();
    if (broken.empty()) broken = check_levels();
    return broken;
  }

 private:
  std::string check_links(BlockIndex index) {
    const Block& block = a_.blocks_[index];
    if (block.size == 0) return at(block, "empty block");
    if (block.previous != kNone && a_.blocks_[block.previous].next != index) {
      return at(block, "one-sided link to the block before");
    }
    if (block.next == kNone) return {};
    const Block& next = a_.blocks_[block.next];
    if (!next.in_use || next.previous != index)
      return at(block, "one-sided link to the next block");
    if (next.address != block.address + block.size) return at(block, "gap after the block");
    if (next.arena != block.arena) return at(block, "neighbours of different pools or streams");
    if (a_.blocks_.range(block.next) != a_.blocks_.range(index))
      return at(block, "neighbours of different ranges");
    if (is_free(block) && is_free(next) && block.mapped == next.mapped) {
      return at(block, "two free neighbours were not joined");
    }
    return {};
  }

  static bool is_free(const Block& block) { return !block.active; }

  std::string check_state(BlockIndex index) const {
    const Block& block = a_.blocks_[index];
    if (block.allocated && !block.active) return at(block, "allocated but not active");
    if (block.active && !block.mapped) return at(block, "active but not mapped");
    if (!block.mapped && !block.expandable) return at(block, "unmapped outside a range");
    if (block.free && block.active) return at(block, "active and free");
    const std::vector<BlockIndex>& deferred = a_.deferred_;
    const bool waits = a_.blocks_.events(index) > 0 ||
                       std::find(deferred.begin(), deferred.end(), index) != deferred.end();
    if (!block.allocated && block.active && !waits) return at(block, "active without a reason");
    if (block.allocated && waits) return at(block, "allocated and waiting");
    return {};
  }

  void count(const Block& block) {
    const auto kind = static_cast<size_t>(a_.pool_of(block).kind);
    const auto size = static_cast<int64_t>(block.size);
    if (block.allocated) {
      ++now_.allocation[kind];
      now_.allocated_bytes[kind] += size;
    }
    if (block.active) {
      ++now_.active[kind];
      now_.active_bytes[kind] += size;
      now_.requested_bytes[kind] += static_cast<int64_t>(block.requested_size);
    } else if (!block.expandable && block.is_split()) {
      ++now_.inactive_split[kind];
      now_.inactive_split_bytes[kind] += size;
    }
    if (!block.expandable && block.previous == kNone) ++now_.segment[kind];
    if (block.mapped) now_.reserved_bytes[kind] += size;
  }

  std::string check_sets() {
    size_t members = 0;
    for (size_t i = 0; i < a_.arenas_.size(); ++i) {
      const CachingAllocator::Arena& arena = a_.arenas_[i];
      const Block* const slab = a_.blocks_.slab();
      FreeEntry last;
      size_t seen = 0;
      BlockIndex before = kNone;
      for (BlockIndex p = arena.free.first(); p != kNone; p = arena.free.after(slab, p), ++seen) {
        const Block& block = slab[p];
        const FreeEntry entry{block.size, block.address, block.number, p};
        if (seen > 0 && !(last < entry)) return at(block, "free set out of order");
        if (arena.free.before(slab, p) != before) return at(block, "free set linked one way");
        last = entry;
        before = p;
        const bool fits = block.in_use && block.free && block.arena == i && block.mapped;
        if (!fits || !is_free(block)) return at(block, "free set holds a wrong block");
      }
      if (arena.free.last(slab) != before) return "a free set ends too early";
      for (const BlockIndex index : arena.unmapped) {
        const Block& block = a_.blocks_[index];
        if (!block.in_use || block.arena != i || block.mapped) {
          return at(block, "unmapped set holds a wrong block");
        }
      }
      members += seen + arena.unmapped.size();
    }
    const auto active = static_cast<size_t>(now_.active[0] + now_.active[1]);
    if (members + active != blocks_) return "a block is in no set, or in two";
    return {};
  }

  std::string check_levels() const {
    const DeviceStats& s = a_.stats();
    const struct {
      const char* name;
      const PoolStat& stat;
      const int64_t* now;
    } rows[] = {{"allocation", s.allocation, now_.allocation},
                {"allocated_bytes", s.allocated_bytes, now_.allocated_bytes},
                {"active", s.active, now_.active},
                {"active_bytes", s.active_bytes, now_.active_bytes},
                {"requested_bytes", s.requested_bytes, now_.requested_bytes},
                {"inactive_split", s.inactive_split, now_.inactive_split},
                {"inactive_split_bytes", s.inactive_split_bytes, now_.inactive_split_bytes},
                {"segment", s.segment, now_.segment},
                {"reserved_bytes", s.reserved_bytes, now_.reserved_bytes}};
    for (const auto& row : rows) {
      for (size_t kind = 0; kind < 2; ++kind) {
        if (row.stat.kind[kind].current != row.now[kind]) {
          return std::string(row.name) + " is " + std::to_string(row.stat.kind[kind].current) +
                 ", a recount gives " + std::to_string(row.now[kind]);
        }
      }
      if (row.stat.all.current != row.now[0] + row.now[1]) {
        return std::string(row.name) + ".all is not the sum of the pools";
      }
    }
    return {};
  }

  const CachingAllocator& a_;
  Recount now_;
  size_t blocks_ = 0;
};

// Empty when everything holds, else one sentence about the first broken invariant:
// neighbours are contiguous and linked both ways, free blocks never lie side by side, every block
// is in exactly one of free set, unmapped set, active; every level in stats()
// equals a recount.
inline std::string check_invariants(const CachingAllocator& allocator) {
  return InvariantCheck(allocator).run();
}

}  // namespace fragscope::model
