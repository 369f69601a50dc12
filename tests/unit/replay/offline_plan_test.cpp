// The offline plan: never two blocks at one place at one time, never below the live peak, optimal
// where lives nest.
#include "replay/offline_plan.h"

#include <algorithm>

#include "tests/support/catch.h"

using namespace fragscope::replay;

namespace {

// Every pair is looked at.
bool disjoint(const std::vector<PlannedBlock>& blocks, const std::vector<uint64_t>& offsets) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (size_t j = i + 1; j < blocks.size(); ++j) {
      const bool together = blocks[i].birth < blocks[j].death && blocks[j].birth < blocks[i].death;
      const bool overlap =
          offsets[i] < offsets[j] + blocks[j].size && offsets[j] < offsets[i] + blocks[i].size;
      if (together && overlap) return false;
    }
  }
  return true;
}

uint64_t top(const std::vector<PlannedBlock>& blocks, const std::vector<uint64_t>& offsets) {
  uint64_t result = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    result = std::max(result, offsets[i] + blocks[i].size);
  }
  return result;
}

}  // namespace

TEST_CASE("no blocks need no memory") {
  const OfflinePlan plan = plan_offline({});
  CHECK(plan.height == 0);
  CHECK(plan.live_peak == 0);
  CHECK(plan.offsets.empty());
}

TEST_CASE("lives that nest are packed to the live peak") {
  // Forward: ten activations, each with a temporary; backward: in the reverse order.
  std::vector<PlannedBlock> blocks;
  constexpr uint32_t kLayers = 10;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    blocks.push_back({1000 + 512 * layer, 2 * layer, 4 * kLayers - 2 * layer});
    blocks.push_back({300, 2 * layer + 1, 2 * layer + 2});
  }
  const OfflinePlan plan = plan_offline(blocks);
  CHECK(plan.height == plan.live_peak);
  CHECK(disjoint(blocks, plan.offsets));
}

TEST_CASE("blocks that do not meet share their place") {
  const std::vector<PlannedBlock> blocks = {{512, 0, 1}, {1024, 1, 3}, {512, 2, 3}};
  const OfflinePlan plan = plan_offline(blocks);
  CHECK(plan.live_peak == 1536);
  CHECK(plan.height == 1536);
  CHECK(disjoint(blocks, plan.offsets));
}

TEST_CASE("random plans are valid, near the bound, and the same each time") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    uint64_t state = seed;
    const auto random = [&](uint64_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return (state >> 33) % below;
    };
    std::vector<PlannedBlock> blocks;
    const uint32_t count = 50 + static_cast<uint32_t>(random(350));
    for (uint32_t birth = 0; birth < count; ++birth) {
      const uint64_t life = 1 + random(random(4) == 0 ? count : 12);
      const auto death = static_cast<uint32_t>(std::min<uint64_t>(count, birth + life));
      blocks.push_back({512 * (1 + random(random(3) == 0 ? 4000 : 40)), birth, death});
    }
    const OfflinePlan plan = plan_offline(blocks);
    REQUIRE(plan.offsets.size() == blocks.size());
    CHECK(disjoint(blocks, plan.offsets));
    CHECK(plan.height == top(blocks, plan.offsets));
    CHECK(plan.height >= plan.live_peak);
    CHECK(plan.height <= plan.live_peak + plan.live_peak / 5);
    CHECK(plan_offline(blocks).offsets == plan.offsets);
  }
}

TEST_CASE("a plan of many blocks is valid and near the bound, though few orders are tried") {
  std::vector<PlannedBlock> blocks;
  uint64_t state = 7;
  const auto random = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  constexpr uint32_t kBlocks = 60'000;
  for (uint32_t birth = 0; birth < kBlocks; ++birth) {
    const uint64_t life = 1 + random(random(30) == 0 ? 600 : 6);
    const auto death = static_cast<uint32_t>(std::min<uint64_t>(kBlocks, birth + life));
    blocks.push_back({512 * (1 + random(30)), birth, death});
  }
  const OfflinePlan plan = plan_offline(blocks);
  CHECK(plan.height == top(blocks, plan.offsets));
  CHECK(plan.height <= plan.live_peak + plan.live_peak / 10);
  // Against those that live when it is born.
  std::vector<uint32_t> live;
  size_t overlaps = 0;
  for (uint32_t i = 0; i < kBlocks; ++i) {
    std::erase_if(live, [&](uint32_t other) { return blocks[other].death <= i; });
    for (const uint32_t other : live) {
      overlaps += plan.offsets[i] < plan.offsets[other] + blocks[other].size &&
                  plan.offsets[other] < plan.offsets[i] + blocks[i].size;
    }
    live.push_back(i);
  }
  CHECK(overlaps == 0);
  CHECK(plan_offline(blocks).offsets == plan.offsets);
}
