#include "alloc/stream_pools.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "enforce/mutex.h"

namespace fragscope::alloc {
namespace {

struct Open {
  int device;
  uint64_t stream;
  model::PoolId pool;
};

struct State {
  enforce::Mutex mutex;
  std::vector<Open> open;
};

// Never destroyed: PyTorch frees in static destructors.
State& state() {
  static State& all = *new State;
  return all;
}

}  // namespace

void remember_stream_pool(int device, uint64_t stream, model::PoolId pool) {
  State& all = state();
  const enforce::Locked lock(all.mutex);
  all.open.push_back({device, stream, pool});
}

std::optional<model::PoolId> take_stream_pool(int device, uint64_t stream) {
  State& all = state();
  const enforce::Locked lock(all.mutex);
  const auto same = [&](const Open& open) {
    return open.device == device && open.stream == stream;
  };
  const auto newest = std::find_if(all.open.rbegin(), all.open.rend(), same);
  if (newest == all.open.rend()) return std::nullopt;
  const model::PoolId pool = newest->pool;
  all.open.erase(std::next(newest).base());
  return pool;
}

}  // namespace fragscope::alloc
