// The map of pools is walked as PyTorch's own is: tests/golden/oracle/pool_walks.txt is what the
// class of torch's headers did (`tests/oracle/digests pool-walks`).
#include "model/pool_map.h"

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/pool_walk.h"

using namespace fragscope;
using namespace fragscope::model;

namespace {

class ModelMap {
 public:
  void insert(const PoolId& id) {
    map_.insert(id, static_cast<uint32_t>(ids_.size()));
    ids_.push_back(id);
  }
  void erase(const PoolId& id) {
    // The newest of that id: it may have been there before.
    for (size_t at = ids_.size(); at-- > 0;) {
      if (ids_[at] == id) return map_.erase(static_cast<uint32_t>(at));
    }
  }
  std::vector<PoolId> order() const {
    std::vector<PoolId> ids;
    for (const uint32_t index : map_.in_order()) ids.push_back(ids_[index]);
    return ids;
  }

 private:
  PoolMap map_;
  std::vector<PoolId> ids_;
};

}  // namespace

TEST_CASE("the map of pools is walked as PyTorch's is") {
  std::ifstream file(FRAGSCOPE_TEST_DATA "/oracle/pool_walks.txt");
  std::string recorded;
  for (uint64_t seed = 1; seed <= test::kPoolWalks; ++seed) {
    REQUIRE(std::getline(file, recorded));
    ModelMap map;
    const std::string walked = test::pool_walk(seed, map);
    size_t same = 0;
    while (same < walked.size() && walked[same] == recorded[same]) ++same;
    INFO("walk " << seed << ", step " << same / 4);
    CHECK(walked == recorded);
  }
}

TEST_CASE("a map of pools knows who is in it, and forgets nobody else") {
  PoolMap map;
  map.erase(0);
  CHECK_FALSE(map.contains(0));
  map.insert({0, 1}, 7);
  CHECK(map.contains(7));
  CHECK_FALSE(map.contains(0));
  map.erase(0);
  CHECK(map.in_order() == std::vector<uint32_t>{7});
  map.erase(7);
  CHECK(map.in_order().empty());
  map.erase(7);
  map.insert({0, 1}, 8);
  CHECK(map.in_order() == std::vector<uint32_t>{8});
}
