#include "tests/oracle/pool_walks.h"

#include <c10/util/flat_hash_map.h>

#include <iostream>
#include <utility>
#include <vector>

#include "tests/support/pool_walk.h"

namespace fragscope::oracle {
namespace {

using Id = std::pair<uint64_t, uint64_t>;

// As every release hashes ids (MempoolIdHash; its header moved).
struct IdHash {
  std::size_t operator()(const Id& id) const noexcept {
    return id.first != 0 ? id.first : id.second;
  }
};

class LibraryMap {
 public:
  void insert(const model::PoolId& id) { map_.emplace(Id{id.first, id.second}, 0); }
  void erase(const model::PoolId& id) { map_.erase(Id{id.first, id.second}); }
  std::vector<model::PoolId> order() const {
    std::vector<model::PoolId> ids;
    for (const auto& [id, value] : map_) ids.push_back({id.first, id.second});
    return ids;
  }

 private:
  ska::flat_hash_map<Id, int, IdHash> map_;
};

}  // namespace

void print_pool_walks() {
  for (uint64_t seed = 1; seed <= test::kPoolWalks; ++seed) {
    LibraryMap map;
    std::cout << test::pool_walk(seed, map) << "\n";
  }
}

}  // namespace fragscope::oracle
