#include "model/block.h"

#include <algorithm>
#include <new>
#include <utility>

namespace fragscope::model {
namespace {

constexpr BlockIndex kFirstBlocks = 8;  // tuning: the slab grows
constexpr size_t kFirstBuckets = 64;    // tuning: the map grows

}  // namespace

// realloc(): a large slab grows without being there twice.
void BlockTable::grow_slab() {
  // tuning: how much it grows at a time
  const BlockIndex wanted = capacity_ + std::max(kFirstBlocks, capacity_ / 32);
  void* const grown = std::realloc(slab_.get(), wanted * sizeof(Block));
  if (grown == nullptr) throw std::bad_alloc();
  static_cast<void>(slab_.release());
  slab_.reset(static_cast<Block*>(grown));
  capacity_ = wanted;
}

void BlockTable::set_range(BlockIndex index, uint32_t range) {
  slab_[index].expandable = range != kNone;
  if (range != kNone) entry(ranges_, index) = range;
}

// One or two blocks to a bucket.
void BlockTable::grow_map() const {
  const std::vector<BlockIndex> old = std::exchange(buckets_, {});
  // tuning: the map grows
  const size_t size = old.empty() ? kFirstBuckets : old.size() * 2;
  buckets_.assign(size, kNone);
  shift_ = 32;
  for (size_t rest = size; rest > 1; rest >>= 1) --shift_;
  linked_ = 0;
  for (BlockIndex at : old) {
    while (at != kNone) {
      const BlockIndex next = slab_[at].free_next;
      link(at);
      at = next;
    }
  }
}

void BlockTable::make_map() const {
  has_map_ = true;
  grow_map();
  for (BlockIndex index = 0; index < limit(); ++index) {
    if (slab_[index].in_use && slab_[index].allocated) link(index);
  }
}

size_t BlockTable::bytes() const {
  return capacity_ * sizeof(Block) + buckets_.capacity() * sizeof(BlockIndex) +
         (ranges_.capacity() + gc_bases_.capacity()) * sizeof(uint32_t) +
         waits_.capacity() * sizeof(Wait);
}

}  // namespace fragscope::model
