#include "shim/stack_table.h"

namespace fragscope::shim {
StackTable::Answer StackTable::intern(std::span<const uint64_t> frames, uint64_t hash,
                                      uint64_t generation, log::LogWriter& writer) noexcept {
  if (frames.empty()) return {kNoStack, false};
  InternMap::Entry* const entry = ids_.entry(mix_hash(hash, generation) | 1);
  if (entry == nullptr) return {kNoStack, false};
  const uint32_t known = entry->id.load(std::memory_order_acquire);
  if (known != 0) return {known, false};
  const uint32_t id = next_id_.fetch_add(1, std::memory_order_relaxed);
  if (!writer.write_blob(log::BlobKind::stack, id, std::as_bytes(frames))) return {kNoStack, true};
  entry->id.store(id, std::memory_order_release);
  return {id, true};
}

}  // namespace fragscope::shim
