// A random walk of a map of pools: ids come and go, many of them crowded around one slot; after
// every step, four hexadecimal digits of the order in which the map is walked. Taken by PyTorch's
// own map (tests/oracle/pool_walks.cpp) and by the model's (pool_map_test.cpp), which must agree.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "model/stats.h"
#include "tests/support/random_commands.h"

namespace fragscope::test {

inline constexpr uint64_t kPoolWalks = 120;

class PoolIds {
 public:
  // Every third crowd is around the last slot of a map, however large it is.
  explicit PoolIds(Random& random)
      : random_(random), crowd_(random.below(3) == 0 ? 255 : random.below(256)) {}

  model::PoolId next() {
    const bool graph = random_.chance(40);
    uint64_t id = random_.chance(30) ? ++last_ : random_.next() >> random_.below(60);
    // In one slot of 256, as the ids of several maps' tests are: long ways from their own slots.
    while (random_.chance(60) && slot(id) != crowd_) id = near();
    return graph ? model::PoolId{id, 0} : model::PoolId{0, id};
  }

 private:
  static uint64_t slot(uint64_t id) { return model::PoolId{0, id}.slot_in_map(8); }
  uint64_t near() {
    uint64_t id = random_.below(1u << 20);
    while (slot(id) != crowd_) ++id;
    return id;
  }

  Random& random_;
  uint64_t crowd_;
  uint64_t last_ = 0;
};

inline std::string order_digest(const std::vector<model::PoolId>& order) {
  uint64_t sum = 0xcbf2'9ce4'8422'2325ull;
  for (const model::PoolId& id : order) {
    for (const uint64_t word : {id.first, id.second}) sum = (sum ^ word) * 0x100'0000'01b3ull;
    sum ^= sum >> 29;
  }
  char text[5];
  std::snprintf(text, sizeof text, "%04x", static_cast<unsigned>(sum >> 20) & 0xffff);
  return text;
}

// `Map` has insert(id), erase(id) and order(). The digits of all steps.
template <typename Map>
std::string pool_walk(uint64_t seed, Map& map) {
  Random random(seed);
  PoolIds ids(random);
  std::vector<model::PoolId> inside;
  std::string digits;
  const uint64_t steps = 8 + random.below(90);
  const unsigned leaving = 20 + static_cast<unsigned>(random.below(25));
  for (uint64_t step = 0; step < steps; ++step) {
    if (!inside.empty() && random.chance(leaving)) {
      const uint64_t victim = random.below(inside.size());
      map.erase(inside[victim]);
      inside.erase(inside.begin() + static_cast<std::ptrdiff_t>(victim));
    } else {
      const model::PoolId id = ids.next();
      const bool known = std::find(inside.begin(), inside.end(), id) != inside.end();
      if (known || id.is_default()) continue;
      map.insert(id);
      inside.push_back(id);
    }
    digits += order_digest(map.order());
  }
  return digits;
}

}  // namespace fragscope::test
