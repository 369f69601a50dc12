// Private pools in a replay. A recording tells to which pool a request went, not when scopes opened
// and closed: here a scope lies around each request. A pool has one user from its first request
// on, until the recording gives one of its segments back: then nobody used it any more.
//
// Threads: one at a time. Ownership: none.
#pragma once

#include <vector>

#include "model/caching_allocator.h"
#include "replay/client_calls.h"

namespace fragscope::replay {

// The pool that an op names; the default ones if it names none.
inline model::PoolId pool_of(const BlockOp& op) {
  if (!op.pool_known) return {};
  const PoolName name = unpack_pool(op.pool);
  return {name.first, name.second};
}

class PoolUse {
 public:
  // `allocator` was put into a state with these pools in use.
  void reset(std::vector<model::PoolId> used) { used_ = std::move(used); }
  model::MallocResult malloc(model::CachingAllocator& allocator, model::PoolId pool,
                             uint64_t requested, uint64_t stream) {
    return pool.is_default() ? allocator.malloc(requested, stream)
                             : malloc_in(allocator, pool, requested, stream);
  }
  // Before the allocator releases segments of the pool.
  void end(model::CachingAllocator& allocator, model::PoolId pool);

 private:
  model::MallocResult malloc_in(model::CachingAllocator& allocator, model::PoolId pool,
                                uint64_t requested, uint64_t stream);

  std::vector<model::PoolId> used_;
};

}  // namespace fragscope::replay
