// A picture of a device's segments at one moment: plain data, filled from recorded events
// (heap.h), from the allocator model (layout_from_model) or by hand in tests.
//
// Units: bytes, addresses of the process. Segments are in address order; so are the blocks of a
// segment, which cover it without gaps or overlaps: memory between live blocks is a block of state
// `inactive`. Terms are PyTorch's (src/README.md).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "event/event.h"

namespace fragscope::metrics {

enum class BlockState : uint8_t {
  active_allocated,     // the client holds it
  active_pending_free,  // freed by the client, device work may still use it
  inactive,             // free inside a segment
};

struct LayoutBlock {
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t requested = kUnknown;
  BlockState state = BlockState::inactive;
  uint32_t stack = kNoStack;  // of the allocation
  uint64_t seq = 0;           // of the allocation; 0: unknown or inactive

  friend bool operator==(const LayoutBlock&, const LayoutBlock&) = default;
};

struct LayoutSegment {
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t stream = kUnknown;
  bool expandable = false;
  std::vector<LayoutBlock> blocks;
  std::optional<uint32_t> pool = std::nullopt;  // packed PoolName; absent: not known

  uint64_t active_bytes() const;
  uint64_t inactive_bytes() const { return size - active_bytes(); }
  friend bool operator==(const LayoutSegment&, const LayoutSegment&) = default;
};

using Layout = std::vector<LayoutSegment>;

}  // namespace fragscope::metrics
