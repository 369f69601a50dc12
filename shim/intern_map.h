// A lock-free map from 64-bit hashes to ids that are given out once: open addressing in pages that
// the kernel hands out as they are touched. Bounded; nothing is ever removed.
//
// It grows by levels, each eight times the one before: the entries of a program with few stacks lie
// close together, on few pages and in few cache lines. A hash is in the first level that had room
// for it when it came; a level that has been half filled takes no more.
//
// Threads: any. Two threads that meet the same new hash at the same moment both see id 0; nobody
// waits.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fragscope::shim {

class InternMap {
 public:
  struct Entry {
    std::atomic<uint64_t> hash;  // 0 = free
    std::atomic<uint32_t> id;    // 0 = none yet
    uint32_t unused;
  };

  // `entries`: of the last level, a power of two, at least kFirstLevel. False when there is no
  // address space for it.
  bool map(size_t entries) noexcept {
    size_t total = 0;
    for (size_t size = kFirstLevel; levels_ < kMostLevels; size *= kGrowth) {
      Level& level = level_[levels_++];
      level.mask = (size < entries ? size : entries) - 1;
      level.first = total;
      total += level.mask + 1;
      if (size >= entries) break;
    }
    void* const memory = mmap(nullptr, total * sizeof(Entry), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    entries_ = static_cast<Entry*>(memory);  // zero bytes are valid, free entries
    return true;
  }

  // The entry of `hash` (not 0), claimed if need be; nullptr when there is no room near its place.
  Entry* entry(uint64_t hash) noexcept {
    if (entries_ == nullptr) return nullptr;
    for (size_t i = 0; i < levels_; ++i) {
      if (Entry* const found = entry_in(level_[i], hash)) return found;
    }
    return nullptr;
  }

 private:
  static constexpr size_t kFirstLevel = size_t{1} << 12;
  static constexpr size_t kGrowth = 8;
  static constexpr size_t kMostLevels = 4;
  static constexpr size_t kProbes = 64;

  struct Level {
    size_t first = 0;
    size_t mask = 0;
    std::atomic<size_t> used{0};
  };

  Entry* entry_in(Level& level, uint64_t hash) noexcept {
    Entry* const entries = entries_ + level.first;
    for (size_t probe = 0; probe < kProbes; ++probe) {
      Entry& candidate = entries[(hash + probe) & level.mask];
      uint64_t seen = candidate.hash.load(std::memory_order_acquire);
      if (seen == hash) return &candidate;
      if (seen != 0) continue;
      if (level.used.load(std::memory_order_relaxed) > level.mask / 2) return nullptr;
      if (candidate.hash.compare_exchange_strong(seen, hash)) {
        level.used.fetch_add(1, std::memory_order_relaxed);
        return &candidate;
      }
      if (seen == hash) return &candidate;
    }
    return nullptr;
  }

  Entry* entries_ = nullptr;
  size_t levels_ = 0;
  Level level_[kMostLevels];
};

// The finisher of splitmix64 over a running value.
inline uint64_t mix_hash(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) + 0x9E3779B97F4A7C15ull;
  hash = (hash ^ hash >> 30) * 0xBF58476D1CE4E5B9ull;
  hash = (hash ^ hash >> 27) * 0x94D049BB133111EBull;
  return hash ^ hash >> 31;
}

}  // namespace fragscope::shim
