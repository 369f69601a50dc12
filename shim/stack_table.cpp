#include "shim/stack_table.h"

#include <sys/mman.h>

namespace fragscope::shim {
namespace {

// The finisher of splitmix64 over a running value.
uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) + 0x9E3779B97F4A7C15ull;
  hash = (hash ^ hash >> 30) * 0xBF58476D1CE4E5B9ull;
  hash = (hash ^ hash >> 27) * 0x94D049BB133111EBull;
  return hash ^ hash >> 31;
}

uint64_t hash_of(std::span<const uint64_t> frames) {
  uint64_t hash = frames.size();
  for (const uint64_t frame : frames) hash = mix(hash, frame);
  return hash == 0 ? 1 : hash;
}

}  // namespace

bool StackTable::map() noexcept {
  void* const memory = mmap(nullptr, kEntries * sizeof(Entry), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  entries_ = static_cast<Entry*>(memory);
  return true;
}

StackTable::Answer StackTable::intern(std::span<const uint64_t> frames,
                                      log::LogWriter& writer) noexcept {
  if (entries_ == nullptr || frames.empty()) return {kNoStack, false};
  const uint64_t hash = hash_of(frames);
  constexpr size_t kProbes = 64;
  for (size_t probe = 0; probe < kProbes; ++probe) {
    Entry& entry = entries_[(hash + probe) % kEntries];
    uint64_t seen = entry.hash.load(std::memory_order_acquire);
    if (seen == 0 && entry.hash.compare_exchange_strong(seen, hash)) seen = hash;
    if (seen != hash) continue;
    const uint32_t known = entry.id.load(std::memory_order_acquire);
    if (known != 0) return {known, false};
    const uint32_t id = next_id_.fetch_add(1, std::memory_order_relaxed);
    if (!writer.write_blob(log::BlobKind::stack, id, std::as_bytes(frames)))
      return {kNoStack, true};
    entry.id.store(id, std::memory_order_release);
    return {id, true};
  }
  return {kNoStack, false};
}

}  // namespace fragscope::shim
