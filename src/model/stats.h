// Allocator statistics under PyTorch's names (torch.cuda.memory_stats()).
//
// Units: bytes for …_bytes, counts otherwise. `current` is a level; `allocated` and `freed` are the
// sums of its rises and falls; `peak` its maximum since the last reset.
// Source of facts: c10/core/CachingDeviceAllocator.h, torch/cuda/memory.py.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fragscope::model {

struct VersionProfile;

struct Stat {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t allocated = 0;
  int64_t freed = 0;

  void rise(uint64_t amount) {
    current += static_cast<int64_t>(amount);
    peak = std::max(peak, current);
    allocated += static_cast<int64_t>(amount);
  }
  void fall(uint64_t amount) {
    current -= static_cast<int64_t>(amount);
    freed += static_cast<int64_t>(amount);
  }
  void reset_peak() { peak = current; }
  void reset_accumulated() { allocated = freed = 0; }
};

enum class PoolKind : uint8_t { kSmall = 0, kLarge = 1 };

// One quantity, for all pools and by kind of pool.
struct PoolStat {
  Stat all;
  std::array<Stat, 2> kind;  // by PoolKind

  void rise(PoolKind pool, uint64_t amount) {
    all.rise(amount);
    kind[static_cast<size_t>(pool)].rise(amount);
  }
  void fall(PoolKind pool, uint64_t amount) {
    all.fall(amount);
    kind[static_cast<size_t>(pool)].fall(amount);
  }
};

// (a, b) of torch.cuda: (0, 0) are the default pools, (0, n) MemPools, (n, 0) graphs' pools.
struct PoolId {
  uint64_t first = 0;
  uint64_t second = 0;
  bool operator==(const PoolId&) const = default;
  bool is_default() const { return first == 0 && second == 0; }
  // Where it stands in PyTorch's maps of pools (ska::flat_hash_map, Fibonacci hashing) of 2^bits
  // slots: a flush walks them slot by slot.
  uint64_t slot_in_map(int bits) const {
    return (0x9e37'79b9'7f4a'7c15ull * (first != 0 ? first : second)) >> (64 - bits);
  }
};

struct PrivatePoolBytes {
  PoolId id;
  PoolStat reserved_bytes;
};

struct DeviceStats {
  PoolStat allocation;
  PoolStat segment;
  PoolStat active;
  PoolStat inactive_split;
  PoolStat allocated_bytes;
  PoolStat reserved_bytes;
  PoolStat active_bytes;
  PoolStat inactive_split_bytes;
  PoolStat requested_bytes;
  Stat oversize_allocations;
  Stat oversize_segments;
  int64_t max_split_size = -1;  // -1: unlimited, as PyTorch prints it
  int64_t num_alloc_retries = 0;
  int64_t num_ooms = 0;
  int64_t num_sync_all_streams = 0;
  int64_t num_device_alloc = 0;
  int64_t num_device_free = 0;
  int64_t num_oom_rejections = 0;
  std::vector<PrivatePoolBytes> private_pools;  // in order of creation

  void reset_peaks();
  void reset_accumulated();
};

// Calls `visit("allocated_bytes.all.current", value)` for every key that memory_stats() of the
// profile's release has, in alphabetical order.
void visit_stats(const DeviceStats& stats, const VersionProfile& profile,
                 const std::function<void(const std::string&, int64_t)>& visit);

}  // namespace fragscope::model
