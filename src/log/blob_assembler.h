// Parts of blobs -> whole blobs. Memory is bounded: at most kMaxPending unfinished blobs, the
// oldest gives way. Parts of one id come in order; two threads that write the same id at once send
// the same bytes, so a part that is there already is ignored. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "log/log_layout.h"

namespace fragscope::log {

class BlobAssembler {
 public:
  static constexpr size_t kMaxPending = 4096;

  // Fields that no writer of ours sends (unknown kind, part >= parts, a short part in the middle).
  static bool valid(const BlobPart& part);

  // The whole blob when `part`, found at `position` of the log, completes it. `part` must be valid.
  std::optional<std::vector<std::byte>> add(const BlobPart& part, uint64_t position);

  // Position of the first part of the oldest unfinished blob; `otherwise` when there is none.
  uint64_t oldest_pending(uint64_t otherwise) const;

  uint64_t pending() const { return pending_.size(); }

 private:
  struct Pending {
    uint64_t first_position = 0;
    uint16_t next_part = 0;
    std::vector<std::byte> bytes;
  };
  using Key = std::pair<uint8_t, uint32_t>;  // kind, id

  void make_room();

  std::map<Key, Pending> pending_;
};

}  // namespace fragscope::log
