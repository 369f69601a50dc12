#include "replay/pool_use.h"

#include <algorithm>

namespace fragscope::replay {

model::MallocResult PoolUse::malloc_in(model::CachingAllocator& allocator, model::PoolId pool,
                                       uint64_t requested, uint64_t stream) {
  if (std::find(used_.begin(), used_.end(), pool) == used_.end()) {
    allocator.create_pool(pool, {});
    used_.push_back(pool);
  }
  allocator.begin_pool(pool);
  const model::MallocResult result = allocator.malloc(requested, stream);
  allocator.end_pool(pool);
  allocator.release_pool(pool);  // the user that the scope was
  return result;
}

void PoolUse::end(model::CachingAllocator& allocator, model::PoolId pool) {
  if (std::erase(used_, pool) > 0) allocator.release_pool(pool);
}

}  // namespace fragscope::replay
