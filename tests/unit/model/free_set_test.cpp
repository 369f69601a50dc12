// FreeSet against a plain sorted set, on sequences that fill, chain, split and empty its leaves.
#include "model/free_set.h"

#include <algorithm>
#include <set>
#include <vector>

#include "tests/support/catch.h"

using namespace fragscope::model;

namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2654435761u + 1) {}
  uint64_t below(uint64_t limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % limit;
  }

 private:
  uint64_t state_;
};

// Both sets, kept the same.
struct Pair {
  FreeSet set;
  std::set<FreeEntry> plain;
  BlockIndex next = 0;

  FreeEntry fresh(uint64_t size, uint64_t address, uint32_t tie) {
    return {size, address, tie, next++};
  }
  void insert(const FreeEntry& entry) {
    if (!plain.insert(entry).second) return;
    set.insert(entry);
  }
  void erase(const FreeEntry& entry) {
    plain.erase(entry);
    set.erase(entry);
  }
  FreeEntry nth(size_t n) const {
    return *std::next(plain.begin(), static_cast<std::ptrdiff_t>(n));
  }

  std::vector<BlockIndex> forwards() const {
    std::vector<BlockIndex> blocks;
    for (auto at = set.begin(); at != set.end(); at = set.after(at)) {
      blocks.push_back(set.at(at).block);
    }
    return blocks;
  }
  std::vector<BlockIndex> backwards() const {
    std::vector<BlockIndex> blocks;
    for (auto at = set.end(); at != set.begin();) {
      at = set.before(at);
      blocks.push_back(set.at(at).block);
    }
    return blocks;
  }
  bool same() const {
    std::vector<BlockIndex> expected;
    for (const FreeEntry& entry : plain) expected.push_back(entry.block);
    if (forwards() != expected) return false;
    std::reverse(expected.begin(), expected.end());
    return backwards() == expected && set.size() == plain.size() && set.empty() == plain.empty();
  }
  bool same_bound(uint64_t size) const {
    const auto right = plain.lower_bound(FreeEntry{size, 0, 0, 0});
    const FreeSet::Position found = set.lower_bound(size);
    if (right == plain.end()) return found == set.end();
    return found != set.end() && set.at(found).block == right->block;
  }
};

// Sizes of every magnitude, many of them equal or in one bin.
uint64_t any_size(Random& random, int crowd) {
  switch (random.below(static_cast<uint64_t>(crowd))) {
    case 0:
      return 512 * (1 + random.below(200));
    case 1:
      return (uint64_t{1} << (9 + random.below(50))) + 512 * random.below(3);
    case 2:
      return random.below(uint64_t{1} << 44) + 1;  // sizes need not be multiples of 512
    default:
      return 20'971'520 + 512 * random.below(4);
  }
}

}  // namespace

TEST_CASE("a free set is a sorted set") {
  const int crowd = GENERATE(3, 6, 40);
  for (uint64_t seed = 0; seed < 6; ++seed) {
    Random random(seed + static_cast<uint64_t>(crowd) * 100);
    Pair pair;
    CHECK(pair.same());
    for (int step = 0; step < 2500; ++step) {
      const bool grows = step % 1000 < 600;
      const uint64_t act = random.below(10);
      if (pair.plain.empty() || (grows ? act < 6 : act < 2)) {
        pair.insert(pair.fresh(any_size(random, crowd), 512 * random.below(1u << 20),
                               static_cast<uint32_t>(random.below(3))));
      } else if (act < 8) {
        pair.erase(pair.nth(random.below(pair.plain.size())));
      } else {
        const FreeEntry old = pair.nth(random.below(pair.plain.size()));
        FreeEntry changed = old;
        changed.size = act == 8 ? any_size(random, crowd) : old.size + 512 * random.below(3);
        changed.address += 512 * random.below(5);
        if (pair.plain.count(changed) != 0) continue;
        pair.plain.erase(old);
        pair.plain.insert(changed);
        const FreeSet::Position at = pair.set.find(old);
        REQUIRE(pair.set.at(at).block == old.block);
        pair.set.replace(at, changed);
      }
      const uint64_t asked = any_size(random, crowd);
      if (!pair.same_bound(asked)) FAIL("seed " << seed << ", step " << step << ": " << asked);
      if (step % 7 == 0 && !pair.same()) FAIL("seed " << seed << ", step " << step);
    }
    while (!pair.plain.empty()) pair.erase(pair.nth(random.below(pair.plain.size())));
    CHECK(pair.same());
  }
}

TEST_CASE("equally large blocks stand by tie, then by address") {
  Pair pair;
  for (const uint32_t tie : {3u, 1u, 2u}) {
    for (uint64_t address = 100; address > 0; --address) {
      pair.insert(pair.fresh(4096, address * 512, tie));
    }
  }
  CHECK(pair.same());
  CHECK(pair.set.at(pair.set.lower_bound(4096)).tie == 1);
  CHECK(pair.set.at(pair.set.lower_bound(1)).address == 512);
  CHECK(pair.set.lower_bound(4097) == pair.set.end());
}

TEST_CASE("every size has a place, up to the largest") {
  Pair pair;
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t size = uint64_t{1} << bit;
    pair.insert(pair.fresh(size, 512, 0));
    pair.insert(pair.fresh(size - 1, 512, 0));
  }
  CHECK(pair.same());
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t size = uint64_t{1} << bit;
    for (const uint64_t asked : {size - 1, size, size + 1}) CHECK(pair.same_bound(asked));
  }
  CHECK(pair.same_bound(UINT64_MAX));
}
