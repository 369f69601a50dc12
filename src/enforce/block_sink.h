// Who is told which blocks are served: the recorder. Called under the allocator's lock, in the
// order in which blocks change hands; must not call the allocator back.
// Units: bytes; addresses and streams are handles.
#pragma once

#include <cstdint>

namespace fragscope::enforce {

struct BlockAlloc {
  uint64_t stream = 0;
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t requested = 0;
  uint64_t allocated = 0;  // totals of the device afterwards
  uint64_t reserved = 0;
};

class BlockSink {
 public:
  virtual ~BlockSink() = default;
  virtual void on_alloc(const BlockAlloc& block) = 0;
  virtual void on_free_requested(uint64_t stream, uint64_t address, uint64_t requested) = 0;
  virtual void on_free_completed(uint64_t stream, uint64_t address, uint64_t requested) = 0;
  virtual void on_segment_alloc(uint64_t stream, uint64_t address, uint64_t size) = 0;
  virtual void on_segment_free(uint64_t stream, uint64_t address, uint64_t size) = 0;
  virtual void on_oom(uint64_t stream, uint64_t requested, uint64_t device_free) = 0;
};

}  // namespace fragscope::enforce
