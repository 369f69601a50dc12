// A lock-free map from 64-bit hashes to ids that are given out once: open addressing in pages that
// the kernel hands out as they are touched. Bounded; nothing is ever removed.
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

  // `entries`: a power of two. False when there is no address space for it.
  bool map(size_t entries) noexcept {
    void* const memory = mmap(nullptr, entries * sizeof(Entry), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    mask_ = entries - 1;
    entries_ = static_cast<Entry*>(memory);  // zero bytes are valid, free entries
    return true;
  }

  // The entry of `hash` (not 0), claimed if need be; nullptr when there is no room near its place.
  Entry* entry(uint64_t hash) noexcept {
    if (entries_ == nullptr) return nullptr;
    constexpr size_t kProbes = 64;
    for (size_t probe = 0; probe < kProbes; ++probe) {
      Entry& candidate = entries_[(hash + probe) & mask_];
      uint64_t seen = candidate.hash.load(std::memory_order_acquire);
      if (seen == 0 && candidate.hash.compare_exchange_strong(seen, hash)) seen = hash;
      if (seen == hash) return &candidate;
    }
    return nullptr;
  }

 private:
  Entry* entries_ = nullptr;
  size_t mask_ = 0;
};

// The finisher of splitmix64 over a running value.
inline uint64_t mix_hash(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) + 0x9E3779B97F4A7C15ull;
  hash = (hash ^ hash >> 30) * 0xBF58476D1CE4E5B9ull;
  hash = (hash ^ hash >> 27) * 0x94D049BB133111EBull;
  return hash ^ hash >> 31;
}

}  // namespace fragscope::shim
