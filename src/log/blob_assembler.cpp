#include "log/blob_assembler.h"

#include <algorithm>

namespace fragscope::log {

bool BlobAssembler::valid(const BlobPart& part) {
  const bool last = part.part + 1 == part.parts;
  return part.kind >= static_cast<uint8_t>(BlobKind::stack) &&
         part.kind <= static_cast<uint8_t>(BlobKind::python_frame) && part.part < part.parts &&
         part.parts <= kMaxBlobBytes / kBlobPartBytes && part.bytes <= kBlobPartBytes &&
         (last || part.bytes == kBlobPartBytes);
}

std::optional<std::vector<std::byte>> BlobAssembler::add(const BlobPart& part, uint64_t position) {
  const std::byte* begin = part.data;
  const std::byte* end = part.data + part.bytes;
  if (part.parts == 1) return std::vector<std::byte>(begin, end);
  const Key key{part.kind, part.id};
  auto found = pending_.find(key);
  if (found == pending_.end()) {
    if (part.part != 0) return std::nullopt;
    make_room();
    found = pending_.emplace(key, Pending{position, 0, {}}).first;
  }
  Pending& blob = found->second;
  if (part.part != blob.next_part) return std::nullopt;
  blob.bytes.insert(blob.bytes.end(), begin, end);
  ++blob.next_part;
  if (blob.next_part != part.parts) return std::nullopt;
  std::vector<std::byte> whole = std::move(blob.bytes);
  pending_.erase(found);
  return whole;
}

uint64_t BlobAssembler::oldest_pending(uint64_t otherwise) const {
  for (const auto& entry : pending_) otherwise = std::min(otherwise, entry.second.first_position);
  return otherwise;
}

void BlobAssembler::make_room() {
  if (pending_.size() < kMaxPending) return;
  pending_.erase(
      std::min_element(pending_.begin(), pending_.end(), [](const auto& a, const auto& b) {
        return a.second.first_position < b.second.first_position;
      }));
}

}  // namespace fragscope::log
