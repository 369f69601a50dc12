// Memory that is served beside the cache, in the statistics.
#include "model/caching_allocator.h"

namespace fragscope::model {

void CachingAllocator::set_outside_reserved(uint64_t now) {
  const uint64_t before = outside_reserved_;
  if (now == before) return;
  outside_reserved_ = now;
  if (before != 0) {
    stats_.reserved_bytes.fall(PoolKind::kLarge, before);
    stats_.segment.fall(PoolKind::kLarge, 1);
    ++stats_.num_device_free;
  }
  if (now != 0) {
    stats_.reserved_bytes.rise(PoolKind::kLarge, now);
    stats_.segment.rise(PoolKind::kLarge, 1);
    ++stats_.num_device_alloc;
  }
}

void CachingAllocator::begin_outside_block(uint64_t size, uint64_t requested) {
  running_.begin_block(PoolKind::kLarge, size, requested);
}

void CachingAllocator::free_outside_block(uint64_t size) {
  running_.begin_wait(PoolKind::kLarge, size);
}

void CachingAllocator::complete_outside_block(uint64_t size, uint64_t requested) {
  running_.end_wait(PoolKind::kLarge, size, requested);
}

}  // namespace fragscope::model
