// Asked before the cache: a plan made in advance, or a policy that learns. What it does not serve
// the cache does.
//
// Units: bytes and device addresses. Threads: called under the allocator's lock. Errors: an answer
// of nothing is always allowed.
#pragma once

#include <cstdint>
#include <optional>

namespace fragscope::enforce {

struct PlacedBlock {
  uint64_t address = 0;
  uint64_t size = 0;  // bytes that belong to the block, at least the request
};

class Placement {
 public:
  virtual ~Placement() = default;

  // A place for `requested` (> 0) bytes of the work on `stream`; nothing: the cache serves it. The
  // place overlaps no block that was offered and not released. Memory that was released by work on
  // another stream may be offered only once that work is done: release() is called after the
  // streams named by record_stream are done, not after the block's own stream is.
  virtual std::optional<PlacedBlock> offer(uint64_t requested, uint64_t stream) = 0;
  // An offered block comes back.
  virtual void release(uint64_t address) = 0;

  // Bytes that it holds of the device.
  virtual uint64_t reserved_bytes() const = 0;
  // The address lies in memory that it holds.
  virtual bool contains(uint64_t address) const = 0;
  // Gives back what no block lies in. Called at empty_cache() and before an allocation fails.
  virtual void release_cached() {}
};

}  // namespace fragscope::enforce
