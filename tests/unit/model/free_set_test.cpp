// FreeSet against a plain sorted set, on sequences that fill its bins, make trees of them and empty
// them.
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
  BlockTable blocks;
  FreeSet set;
  std::set<FreeEntry> plain;

  FreeEntry fresh(uint64_t size, uint64_t address, uint32_t tie) {
    const BlockIndex index = blocks.create();
    blocks[index].size = size;
    blocks[index].address = address;
    blocks[index].number = tie;
    return {size, address, tie, index};
  }
  void insert(const FreeEntry& entry) {
    if (!plain.insert(entry).second) return;
    set.insert(blocks.slab(), entry.block);
    CHECK(blocks[entry.block].free);
  }
  void erase(const FreeEntry& entry) {
    plain.erase(entry);
    set.erase(blocks.slab(), entry.block);
    CHECK_FALSE(blocks[entry.block].free);
  }
  void shrink(const FreeEntry& old, const FreeEntry& now) {
    plain.erase(old);
    plain.insert(now);
    set.shrink(blocks.slab(), set.found(blocks.slab(), old.block), now.address, now.size);
    CHECK(blocks[now.block].size == now.size);
    CHECK(blocks[now.block].address == now.address);
    CHECK(blocks[now.block].free);
  }
  void grow(const FreeEntry& old, const FreeEntry& now) {
    plain.erase(old);
    plain.insert(now);
    set.grow(blocks.slab(), old.block, now.address, now.size, now.tie);
    CHECK(blocks[now.block].size == now.size);
    CHECK(blocks[now.block].address == now.address);
    CHECK(blocks[now.block].number == now.tie);
    CHECK(blocks[now.block].free);
  }
  FreeEntry nth(size_t n) const {
    return *std::next(plain.begin(), static_cast<std::ptrdiff_t>(n));
  }

  std::vector<BlockIndex> forwards() const {
    std::vector<BlockIndex> order;
    const Block* const slab = blocks.slab();
    for (auto at = set.first(); at != kNone; at = set.after(slab, at)) order.push_back(at);
    return order;
  }
  std::vector<BlockIndex> backwards() const {
    std::vector<BlockIndex> order;
    const Block* const slab = blocks.slab();
    for (auto at = set.last(slab); at != kNone; at = set.before(slab, at)) order.push_back(at);
    return order;
  }
  bool same() const {
    std::vector<BlockIndex> expected;
    for (const FreeEntry& entry : plain) expected.push_back(entry.block);
    if (forwards() != expected) return false;
    std::reverse(expected.begin(), expected.end());
    return backwards() == expected && set.empty() == plain.empty();
  }
  bool same_bound(uint64_t size) {
    const auto right = plain.lower_bound(FreeEntry{size, 0, 0, 0});
    const BlockIndex bound = right != plain.end() ? right->block : kNone;
    if (set.lower_bound(blocks.slab(), size) != bound) return false;
    const FreeSet::Found found = set.search(blocks.slab(), size);
    if (right == plain.end()) return found.block == kNone;
    return found.block == right->block && found.bin == set.found(blocks.slab(), right->block).bin;
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
        const uint64_t step_size = 512 * (1 + random.below(3));
        if (act == 8) {
          const uint64_t size = 1 + random.below(old.size);
          const FreeEntry less{
              old.size > step_size && random.below(2) == 0 ? old.size - step_size : size,
              old.address + 512 * random.below(5), old.tie, old.block};
          if (less.size == old.size || pair.plain.count(less) != 0) continue;
          pair.shrink(old, less);
        } else {
          const uint64_t size =
              old.size + (random.below(2) == 0 ? step_size : any_size(random, crowd));
          const FreeEntry more{size, 512 * random.below(1u << 20),
                               static_cast<uint32_t>(random.below(3)), old.block};
          if (pair.plain.count(more) == 0) pair.grow(old, more);
        }
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
  const Block* const slab = pair.blocks.slab();
  CHECK(slab[pair.set.lower_bound(slab, 4096)].number == 1);
  CHECK(slab[pair.set.lower_bound(slab, 1)].address == 512);
  CHECK(pair.set.lower_bound(slab, 4097) == kNone);
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

TEST_CASE("a crowded bin is searched as a tree, and is a chain again once it was empty") {
  Pair pair;
  std::vector<FreeEntry> crowd;
  for (uint64_t i = 0; i < 1000; ++i) crowd.push_back(pair.fresh(512, 512 * (i + 1), 0));
  pair.insert(crowd[0]);
  const size_t chained = pair.set.bytes();
  for (const FreeEntry& entry : crowd) pair.insert(entry);
  CHECK(pair.same());
  CHECK(pair.set.bytes() > chained + 1000 * sizeof(FreeEntry));
  for (const FreeEntry& entry : crowd) pair.erase(entry);
  CHECK(pair.same());
  CHECK(pair.set.bytes() == chained);
  for (const size_t i : {1, 0, 2, 4, 3, 5}) {  // a few: walks among them are short
    pair.insert(crowd[i]);
    CHECK(pair.same());
    CHECK(pair.set.bytes() == chained);
  }
}

TEST_CASE("a bin that is walked far by a search becomes a tree, whatever the order of insertion") {
  Pair pair;
  constexpr uint64_t kSize = 33 * 1024;             // in one bin with kSize + 512
  pair.insert(pair.fresh(kSize, kSize * 1000, 0));  // from now on the set has heads for this power
  const size_t chained = pair.set.bytes();
  // Each one goes before all others: none is walked to.
  for (uint64_t i = 999; i > 0; --i) pair.insert(pair.fresh(kSize, kSize * i, 0));
  CHECK(pair.set.bytes() == chained);
  CHECK(pair.same_bound(kSize));
  CHECK(pair.set.bytes() == chained);
  CHECK(pair.same_bound(kSize + 512));
  CHECK(pair.set.bytes() == chained + 1000 * (sizeof(FreeEntry) + 4 * sizeof(void*)));
  CHECK(pair.same());
  CHECK(pair.same_bound(kSize));
  CHECK(pair.same_bound(kSize - 512));
  const FreeEntry larger = pair.fresh(kSize + 512, 1 << 20, 0);
  pair.insert(larger);
  CHECK(pair.same_bound(kSize + 512));
  pair.erase(larger);
  while (!pair.plain.empty()) pair.erase(pair.nth(0));
  CHECK(pair.same());
  CHECK(pair.set.bytes() == chained);
}

TEST_CASE("a free set has heads for the powers of two between its smallest and its largest block") {
  Pair pair;
  CHECK(pair.set.bytes() == 0);
  pair.insert(pair.fresh(512 << 10, 512, 0));
  CHECK(pair.set.bytes() == 8 * sizeof(BlockIndex));
  pair.insert(pair.fresh(512 << 13, 512 << 20, 0));
  CHECK(pair.set.bytes() == 32 * sizeof(BlockIndex));
  pair.insert(pair.fresh(512 << 9, 512 << 22, 0));
  CHECK(pair.set.bytes() == 40 * sizeof(BlockIndex));
  CHECK(pair.same());
}
