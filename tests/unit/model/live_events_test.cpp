// What an owner with a real device adds: events that the provider records, and scopes that are
// aimed request by request.
#include <vector>

#include "base/bytes.h"
#include "model/caching_allocator.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::model;

namespace {

class LiveSegments final : public SegmentProvider {
 public:
  std::optional<uint64_t> device_malloc(uint64_t bytes) override {
    if (bytes > left) return std::nullopt;
    left -= bytes;
    return next += kGiB;
  }
  void device_free(uint64_t, uint64_t bytes) override { left += bytes; }
  DeviceMemoryInfo memory_info() override { return {left, left}; }
  bool record_event(uint64_t stream) override {
    recorded.push_back(stream);
    return true;
  }
  void wait_for_events() override { ++waits; }

  uint64_t left = 64 * kMiB;
  uint64_t next = kGiB;
  std::vector<uint64_t> recorded;
  int waits = 0;
};

struct Live {
  LiveSegments segments;
  CachingAllocator allocator{AllocatorConfig{}, version_profiles().back(), segments};

  uint64_t used_on(uint64_t stream) {
    const uint64_t address = allocator.malloc(3 * kMiB).address;
    REQUIRE(allocator.record_stream(address, stream));
    REQUIRE(allocator.free(address) == FreeOutcome::kPending);
    return address;
  }

  struct EndedUse {
    MallocResult made;
    uint32_t generation;
  };
  // A freed block whose use by another stream has ended, which the allocator has yet to notice.
  EndedUse ended_use() {
    const MallocResult made = allocator.malloc(3 * kMiB);
    REQUIRE(allocator.free_pending(made.block) == FreeOutcome::kPending);
    const uint32_t generation = allocator.blocks().generation(made.block);
    REQUIRE(allocator.complete_block(made.block, generation));
    return {made, generation};
  }
};

}  // namespace

TEST_CASE("a flush of one pool waits for the uses of its own blocks alone") {
  Live live;
  const PoolId pool{0, 1};
  live.used_on(5);
  REQUIRE(live.allocator.begin_pool(pool));
  live.used_on(5);
  live.used_on(6);
  REQUIRE(live.allocator.end_pool(pool));
  REQUIRE(live.allocator.release_pool(pool));
  const auto active = [&] { return live.allocator.stats().active.all.current; };
  CHECK(active() == 3);
  CHECK(live.allocator.empty_cache(pool) == EmptyCacheOutcome::kDone);
  CHECK(active() == 1);
  CHECK(live.allocator.stats().segment.all.current == 1);
  CHECK(live.allocator.empty_cache() == EmptyCacheOutcome::kDone);
  CHECK(active() == 0);
}

TEST_CASE("a pool gets users until it has lost the last one, and again after the flush") {
  Live live;
  const PoolId pool{0, 1};
  CHECK(live.allocator.create_pool(pool, {}));
  CHECK(live.allocator.create_pool(pool, {}));
  CHECK(live.allocator.release_pool(pool));
  CHECK(live.allocator.release_pool(pool));
  CHECK_FALSE(live.allocator.create_pool(pool, {}));
  CHECK_FALSE(live.allocator.begin_pool(pool));
  live.allocator.empty_cache();
  CHECK(live.allocator.create_pool(pool, {}));
}

TEST_CASE("a flush of one pool leaves other pools without users alone") {
  Live live;
  for (const uint64_t number : {1u, 2u}) {
    const PoolId pool{0, number};
    REQUIRE(live.allocator.begin_pool(pool));
    live.allocator.free(live.allocator.malloc(3 * kMiB).address);
    REQUIRE(live.allocator.end_pool(pool));
    REQUIRE(live.allocator.release_pool(pool));
  }
  const auto segments = [&] { return live.allocator.stats().segment.all.current; };
  CHECK(segments() == 2);
  CHECK(live.allocator.empty_cache({0, 2}) == EmptyCacheOutcome::kDone);
  CHECK(segments() == 1);
  CHECK(live.allocator.empty_cache({0, 2}) == EmptyCacheOutcome::kDone);
  CHECK(segments() == 1);
  CHECK(live.allocator.empty_cache({0, 1}) == EmptyCacheOutcome::kDone);
  CHECK(segments() == 0);
}

TEST_CASE("each use of a freed block is an event, done in the order of its stream") {
  Live live;
  const uint64_t first = live.used_on(7);
  const uint64_t second = live.used_on(7);
  const uint64_t other = live.used_on(8);
  CHECK(live.segments.recorded == std::vector<uint64_t>{7, 7, 8});
  live.allocator.complete_until(7, 1);
  CHECK(live.allocator.malloc(3 * kMiB).address == first);
  live.allocator.complete_until(7, 2);
  CHECK(live.allocator.malloc(3 * kMiB).address == second);
  live.allocator.complete_until(8, 1);
  live.allocator.complete_until(8, 0);  // never goes back
  CHECK(live.allocator.malloc(3 * kMiB).address == other);
  CHECK_FALSE(live.allocator.events_outstanding());
}

TEST_CASE("a flush waits for the events that are recorded, and only if there are any") {
  Live live;
  live.allocator.empty_cache();
  CHECK(live.segments.waits == 0);
  live.used_on(7);
  live.allocator.empty_cache();
  CHECK(live.segments.waits == 1);
  CHECK(live.allocator.stats().reserved_bytes.all.current == 0);
}

TEST_CASE("a scope takes the streams that it is aimed at") {
  Live live;
  const PoolId pool{0, 1};
  const uint64_t outside = live.allocator.malloc(3 * kMiB, 1).address;
  live.allocator.free(outside);
  CHECK_FALSE(live.allocator.aim_scope(pool, 1));
  REQUIRE(live.allocator.begin_pool(pool));
  CHECK(live.allocator.aim_scope(pool, UINT64_MAX));
  CHECK(live.allocator.malloc(3 * kMiB, 1).address == outside);
  CHECK(live.allocator.aim_scope(pool, 1));
  const uint64_t inside = live.allocator.malloc(3 * kMiB, 1).address;
  CHECK((inside < outside || inside >= outside + 20 * kMiB));
  CHECK(live.allocator.aim_scope(pool, std::nullopt));
  CHECK(live.allocator.malloc(3 * kMiB, 2).address != 0);
}

TEST_CASE("an ended use of another pool outlives the flush of a private one") {
  Live live;
  const auto [made, generation] = live.ended_use();
  live.allocator.create_pool({0, 1}, {});
  REQUIRE(live.allocator.release_pool({0, 1}));
  CHECK(live.allocator.empty_cache({0, 1}) == EmptyCacheOutcome::kDone);
  CHECK(live.allocator.events_outstanding());
  CHECK(live.allocator.malloc(3 * kMiB).address == made.address);
  CHECK_FALSE(live.allocator.events_outstanding());
  CHECK_FALSE(live.allocator.complete_block(made.block, generation));
}

TEST_CASE("a use that a flush has ended is ended once") {
  Live live;
  const auto [made, generation] = live.ended_use();
  live.allocator.empty_cache();  // waits for all uses
  CHECK_FALSE(live.allocator.events_outstanding());
  CHECK_FALSE(live.allocator.complete_block(made.block, generation));
  const MallocResult again = live.allocator.malloc(3 * kMiB);
  REQUIRE(live.allocator.free_pending(again.block) == FreeOutcome::kPending);
  CHECK(live.allocator.malloc(3 * kMiB).address != again.address);
  CHECK(live.allocator.events_outstanding());
}
