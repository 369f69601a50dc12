// Pools, scopes, the memory fraction, and the books of reserved bytes.
#include <algorithm>
#include <new>

#include "model/caching_allocator.h"
#include "model/rounding.h"

namespace fragscope::model {
namespace {

constexpr uint32_t kLargePool = 0;
constexpr uint32_t kSmallPool = 1;
constexpr std::string_view kRecordsAlready = "beginAllocateToPool: already recording to mempool_id";

}  // namespace

uint32_t CachingAllocator::make_pool(PoolKind kind, uint32_t owner) {
  BlockPool& pool = pools_.emplace_back();
  pool.kind = kind;
  pool.owner = owner;
  return static_cast<uint32_t>(pools_.size() - 1);
}

uint32_t CachingAllocator::find_arena(uint32_t pool, uint64_t stream) {
  std::vector<uint32_t>& arenas = pools_[pool].arenas;
  const auto at = std::lower_bound(
      arenas.begin(), arenas.end(), stream,
      [&](uint32_t arena, uint64_t wanted) { return arenas_[arena].stream < wanted; });
  if (at != arenas.end() && arenas_[*at].stream == stream) return *at;
  if (arenas_.size() == kMaxArenas) throw std::bad_alloc();  // gigabytes of them
  Arena& arena = arenas_.emplace_back();
  arena.stream = stream;
  arena.pool = pool;
  arena.index = static_cast<uint32_t>(arenas_.size() - 1);
  arena.kind = pools_[pool].kind;
  return *arenas.insert(at, arena.index);
}

bool CachingAllocator::scope_blocks() const {
  return profile_.scope == ScopeRule::kAnyScopeBlocks ? !scopes_.empty() : capturing_;
}

uint32_t CachingAllocator::pool_for(uint64_t rounded, uint64_t stream) const {
  const bool small = rounded <= kSmallSize;
  if (scopes_.empty()) return small ? kSmallPool : kLargePool;
  const auto matches = [stream](const Scope& scope) {
    return !scope.stream || *scope.stream == stream;
  };
  const Scope* scope = nullptr;
  if (profile_.newest_scope_first) {
    const auto found = std::find_if(scopes_.rbegin(), scopes_.rend(), matches);
    if (found != scopes_.rend()) scope = &*found;
  } else {
    const auto found = std::find_if(scopes_.begin(), scopes_.end(), matches);
    if (found != scopes_.end()) scope = &*found;
  }
  const uint32_t owner = scope == nullptr ? kNone : find_private(scope->pool);
  if (owner == kNone) return small ? kSmallPool : kLargePool;
  return small ? private_pools_[owner].small : private_pools_[owner].large;
}

uint32_t CachingAllocator::find_private(PoolId id) const {
  for (size_t i = 0; i < private_pools_.size(); ++i) {
    if (private_pools_[i].alive && private_pools_[i].id == id) return static_cast<uint32_t>(i);
  }
  return kNone;
}

CachingAllocator::PrivatePool& CachingAllocator::make_private(PoolId id) {
  uint32_t index = 0;
  while (index < private_pools_.size() && private_pools_[index].alive) ++index;
  if (index == private_pools_.size()) {
    PrivatePool& fresh = private_pools_.emplace_back();
    fresh.small = make_pool(PoolKind::kSmall, index);
    fresh.large = make_pool(PoolKind::kLarge, index);
  }
  PrivatePool& pool = private_pools_[index];
  pool.id = id;
  pool.alive = true;
  pool.uses = 1;
  pool.traits = {};
  return pool;
}

CachingAllocator::PrivatePool* CachingAllocator::add_user(PoolId id) {
  const uint32_t known = find_private(id);
  if (known == kNone) return &make_private(id);
  PrivatePool& pool = private_pools_[known];
  if (pool.uses == 0) {
    last_error_ = "it->second->use_count > 0 INTERNAL ASSERT FAILED";
    return nullptr;
  }
  ++pool.uses;
  return &pool;
}

bool CachingAllocator::has_scope(PoolId id) const {
  const auto same = [id](const Scope& scope) { return scope.pool == id; };
  return std::any_of(scopes_.begin(), scopes_.end(), same);
}

bool CachingAllocator::begin_pool(PoolId id, std::optional<uint64_t> stream) {
  if (!profile_.scope_by_stream && has_scope(id)) {
    last_error_ = kRecordsAlready;
    return false;
  }
  if (add_user(id) == nullptr) {
    library_undefined_ |= profile_.scope_by_stream;  // it counts a scope that nothing can close
    return false;
  }
  scopes_.push_back({id, stream});
  return true;
}

bool CachingAllocator::aim_scope(PoolId id, std::optional<uint64_t> stream) {
  const auto same = [id](const Scope& scope) { return scope.pool == id; };
  const auto newest = std::find_if(scopes_.rbegin(), scopes_.rend(), same);
  if (newest == scopes_.rend()) return false;
  newest->stream = stream;
  return true;
}

bool CachingAllocator::end_pool(PoolId id) {
  const auto same = [id](const Scope& scope) { return scope.pool == id; };
  const auto newest = std::find_if(scopes_.rbegin(), scopes_.rend(), same);
  if (newest == scopes_.rend()) {
    library_undefined_ |= profile_.scope_by_stream;  // it counts one scope less
    last_error_ = profile_.scope_by_stream
                      ? "it != stream_to_pool_map.end() INTERNAL ASSERT FAILED"
                      : "endAllocatePool: not currently recording to mempool_id";
    return false;
  }
  scopes_.erase(std::next(newest).base());
  return true;
}

bool CachingAllocator::release_pool(PoolId id) {
  const uint32_t index = find_private(id);
  if (index == kNone) {
    last_error_ = "it != graph_pools.end() INTERNAL ASSERT FAILED";
    return false;
  }
  if (private_pools_[index].uses == 0) {
    last_error_ = "uc >= 0 INTERNAL ASSERT FAILED";
    library_undefined_ = true;  // it has counted -1 users; flushes fail over them from now on
    return false;
  }
  PrivatePool& pool = private_pools_[index];
  if (--pool.uses == 0) freeable_.insert(id, index);
  return true;
}

bool CachingAllocator::create_pool(PoolId id, PoolTraits traits) {
  PrivatePool* const pool = add_user(id);
  if (pool == nullptr) return false;
  pool->traits = traits;
  return true;
}

// A request to a default pool that found no memory may be served from a `use_on_oom` pool. PyTorch
// opens a scope of that pool for the search, which fails if one is open already; the pool then
// keeps the user that it got.
CachingAllocator::Attempt CachingAllocator::try_fallback(Request& request, BlockIndex& found) {
  if (pools_[arenas_[request.arena].pool].owner != kNone) return Attempt::kFailed;
  for (PrivatePool& pool : private_pools_) {
    if (!pool.alive || !pool.traits.use_on_oom) continue;
    if (has_scope(pool.id)) {
      ++pool.uses;
      last_error_ = kRecordsAlready;
      return Attempt::kError;
    }
    Request other = request;
    // Up to 2.9 the option alone decides, later the request, which is for no expandable block.
    other.expandable = profile_.expandable_split_by_option && config_.expandable_segments;
    const uint32_t target = request.rounded <= kSmallSize ? pool.small : pool.large;
    other.arena = arena_of(target, request.stream);
    found = find_free(other);
    if (found == kNone) continue;
    request = other;
    return Attempt::kGot;
  }
  return Attempt::kFailed;
}

uint64_t CachingAllocator::private_free_bytes() const {
  uint64_t bytes = 0;
  for (const Arena& arena : arenas_) {
    if (pools_[arena.pool].owner == kNone) continue;
    for (auto at = arena.free.first(); at != kNone; at = arena.free.after(blocks_.slab(), at)) {
      bytes += blocks_[at].size;
    }
  }
  return bytes;
}

void CachingAllocator::count_reserved(uint32_t pool, uint64_t grown, uint64_t shrunk) {
  const auto count = [&](PoolStat& stat) {
    stat.rise(pools_[pool].kind, grown);
    stat.fall(pools_[pool].kind, shrunk);
  };
  count(stats_.reserved_bytes);
  if (pools_[pool].owner != kNone) {
    count(private_pool_bytes(private_pools_[pools_[pool].owner].id));
  }
}

// The books of a private pool begin with its first segment and outlive it.
PoolStat& CachingAllocator::private_pool_bytes(PoolId id) {
  for (PrivatePoolBytes& pool : stats_.private_pools) {
    if (pool.id == id) return pool.reserved_bytes;
  }
  return stats_.private_pools.emplace_back(PrivatePoolBytes{id, {}}).reserved_bytes;
}

bool CachingAllocator::set_memory_fraction(double fraction) {
  if (!(fraction >= 0 && fraction <= 1)) return false;
  if (profile_.full_fraction_is_unset && fraction >= 1) {
    allowed_.reset();
    return true;
  }
  const double total = static_cast<double>(provider_.memory_info().total);
  allowed_ = static_cast<uint64_t>(fraction * total);
  return true;
}

}  // namespace fragscope::model
