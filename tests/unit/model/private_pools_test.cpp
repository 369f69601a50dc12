// Private pools: what is left of one after its flush, the order of a flush, and refused requests.
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "model/caching_allocator.h"
#include "model/simulated_segments.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::model;

namespace {

struct Device final : TraceObserver {
  explicit Device(const char* settings, const char* version = "2.15", uint64_t mib = 4096)
      : capacity(mib * kMiB),
        memory(0, capacity),
        segments(memory, capacity, mib * kMiB),
        profile(version_profile(version)),
        allocator(parse_config(settings, profile).value(), profile, segments) {
    allocator.set_observer(this);
  }
  void on_entry(const TraceEntry& entry) override {
    if (entry.action == TraceAction::kSegmentFree) freed.push_back(entry.address);
  }
  MallocResult in_pool(PoolId pool, uint64_t bytes) {
    REQUIRE(allocator.begin_pool(pool));
    const MallocResult result = allocator.malloc(bytes);
    REQUIRE(allocator.end_pool(pool));
    return result;
  }
  uint64_t reserved() const {
    return static_cast<uint64_t>(allocator.stats().reserved_bytes.all.current);
  }

  LocalCapacity capacity;
  DeviceMemory memory;
  SimulatedSegments segments;
  const VersionProfile& profile;
  CachingAllocator allocator;
  std::vector<uint64_t> freed;
};

}  // namespace

TEST_CASE("a flush walks the freeable pools in the order of PyTorch's hash map") {
  Device d("");
  std::map<uint64_t, uint64_t> address;
  for (const uint64_t id : {6u, 1u, 3u}) {
    const MallocResult block = d.in_pool({0, id}, 30 * kMiB);
    address[id] = block.address;
    d.allocator.free(block.address);
  }
  for (const uint64_t id : {6u, 1u, 3u}) REQUIRE(d.allocator.release_pool({0, id}));
  d.allocator.empty_cache();
  // Three pools stand in a map of eight slots: 1 in the 5th, 6 in the 6th, 3 in the 7th.
  CHECK(d.freed == std::vector<uint64_t>{address[1], address[6], address[3]});
}

// Up to 2.9 by the option alone, from 2.10 on not at all (SPEC_NOTES.md).
TEST_CASE("the search in a use_on_oom pool and expandable blocks") {
  const char* version = GENERATE("2.8", "2.9", "2.10", "2.15");
  const bool on = GENERATE(true, false);
  INFO("torch " << version << ", expandable_segments " << on);
  Device d("expandable_segments:True", version, 100);
  d.allocator.create_pool({0, 4}, {true, false});
  const MallocResult spare = d.in_pool({0, 4}, 30 * kMiB);
  d.allocator.free(spare.address);
  if (!on) d.allocator.set_config(parse_config("", d.profile).value());
  REQUIRE(d.allocator.malloc(60 * kMiB).ok());
  const MallocResult found = d.allocator.malloc(28 * kMiB);
  CHECK(found.ok() == (on && d.profile.minor < 10));
  if (found.ok()) CHECK(found.address == spare.address);
}

TEST_CASE("a pool that was flushed away is forgotten, traits and all") {
  const char* settings = GENERATE("", "expandable_segments:True");
  Device d(settings);
  const PoolId pool{0, 4};
  d.allocator.create_pool(pool, {false, true});
  MallocResult block = d.in_pool(pool, 30 * kMiB);
  d.allocator.free(block.address);
  block = d.in_pool(pool, 12 * kMiB);
  const bool expandable = *settings != '\0';
  CHECK(block.block_size == (expandable ? 40 * kMiB : 30 * kMiB));  // no_split
  d.allocator.free(block.address);
  CHECK(d.reserved() > 0);
  for (int user = 0; user < 3; ++user) REQUIRE(d.allocator.release_pool(pool));
  CHECK_FALSE(d.allocator.release_pool(pool));
  d.allocator.empty_cache();
  CHECK(d.reserved() == 0);
  CHECK_FALSE(d.allocator.release_pool(pool));
  CHECK_FALSE(d.allocator.release_pool({0, 77}));
  block = d.in_pool(pool, 30 * kMiB);
  d.allocator.free(block.address);
  CHECK(d.in_pool(pool, 12 * kMiB).block_size == 12 * kMiB);
}

TEST_CASE("a pool keeps its memory while it has a user or a live block") {
  Device d("");
  const MallocResult block = d.in_pool({0, 4}, 30 * kMiB);
  d.allocator.empty_cache();
  CHECK(d.reserved() == 30 * kMiB);
  REQUIRE(d.allocator.release_pool({0, 4}));
  d.allocator.empty_cache();
  CHECK(d.reserved() == 30 * kMiB);
  d.allocator.free(block.address);
  d.allocator.empty_cache();
  CHECK(d.reserved() == 0);
}

TEST_CASE("a refused request gives no block and no address") {
  Device small("", "2.15", 40);
  const MallocResult oom = small.allocator.malloc(50 * kMiB);
  CHECK(oom.outcome == MallocOutcome::kOutOfMemory);
  Device strict("throw_on_cudamalloc_oom:True", "2.15", 40);
  const MallocResult rejected = strict.allocator.malloc(50 * kMiB);
  CHECK(rejected.outcome == MallocOutcome::kRejected);
  Device pools("", "2.15", 40);
  pools.allocator.create_pool({0, 1}, {true, false});
  REQUIRE(pools.allocator.begin_pool({0, 1}, 9));
  const MallocResult asserted = pools.allocator.malloc(50 * kMiB);
  CHECK(asserted.outcome == MallocOutcome::kAssertion);
  CHECK(pools.allocator.last_error() == "beginAllocateToPool: already recording to mempool_id");
  for (const MallocResult& result : {oom, rejected, asserted, small.allocator.malloc(0)}) {
    CHECK_FALSE(result.ok());
    CHECK(result.block == kNone);
    CHECK(result.address == 0);
    CHECK(result.block_size == 0);
  }
  CHECK(small.allocator.last_oom().requested == 50 * kMiB);
  CHECK(small.allocator.last_oom().segment == 50 * kMiB);
  CHECK(small.allocator.last_oom().device_free == 40 * kMiB);
  CHECK(small.allocator.last_oom().device_total == 40 * kMiB);
  CHECK(small.allocator.stats().num_ooms == 1);
  CHECK(strict.allocator.stats().num_oom_rejections == 1);
}

TEST_CASE("a free of nothing and of the unknown are told apart") {
  Device d("");
  CHECK(d.allocator.free(0) == FreeOutcome::kNull);
  CHECK(d.allocator.free(512) == FreeOutcome::kUnknown);
  const MallocResult block = d.allocator.malloc(512);
  CHECK_FALSE(d.allocator.record_stream(block.address + 512, 1));
  CHECK(d.allocator.record_stream(block.address, 0));  // its own stream
  CHECK(d.allocator.free(block.address) == FreeOutcome::kFreed);
  CHECK(d.allocator.free(block.address) == FreeOutcome::kUnknown);
}

TEST_CASE(
    "pools stand in the map's slots by Fibonacci hashing of the part of their id that is not 0") {
  // The multiplier is 2^64 divided by the golden ratio, odd. 2^63 times it is 2^63, so that 2^63 +
  // 1 falls into the slot opposite to that of 1.
  constexpr uint64_t kHalf = uint64_t{1} << 63;
  CHECK(PoolId{1, 0}.slot_in_map(2) == 2);  // 0.618 of 4
  CHECK(PoolId{0, 1}.slot_in_map(2) == 2);
  CHECK(PoolId{2, 1}.slot_in_map(2) == 0);  // 0.236 of 4
  CHECK(PoolId{1, 0}.slot_in_map(3) == 4);
  CHECK(PoolId{kHalf + 1, 0}.slot_in_map(3) == 0);
  // The whole product: (n + 1) times the multiplier is n times it and once more, in all bits.
  for (const uint64_t n : {1ull, 3ull, 1ull << 40, ~0ull - 1}) {
    CHECK(PoolId{n + 1, 0}.slot_in_map(64) - PoolId{n, 0}.slot_in_map(64) ==
          PoolId{1, 0}.slot_in_map(64));
  }
}

TEST_CASE("a pool's scope is opened once; in 2.1 and 2.2 as often as one likes") {
  for (const VersionProfile& profile : version_profiles()) {
    INFO(profile.name);
    Device d("", std::string(profile.name).c_str());
    REQUIRE(d.allocator.begin_pool({0, 1}, 1));
    CHECK(d.allocator.begin_pool({0, 1}, 2) == (profile.minor < 3));
    CHECK(d.allocator.last_error() ==
          (profile.minor < 3 ? "" : "beginAllocateToPool: already recording to mempool_id"));
  }
}

TEST_CASE("misuse of pools: what it says, and after what PyTorch's own books are wrong") {
  for (const VersionProfile& profile : version_profiles()) {
    INFO(profile.name);
    const bool by_stream = profile.minor < 3;
    const std::string version(profile.name);
    Device ended("", version.c_str());
    CHECK_FALSE(ended.allocator.end_pool({0, 1}));
    CHECK(ended.allocator.last_error() ==
          (by_stream ? "it != stream_to_pool_map.end() INTERNAL ASSERT FAILED"
                     : "endAllocatePool: not currently recording to mempool_id"));
    CHECK(ended.allocator.undefined_in_library() == by_stream);

    Device released("", version.c_str());
    CHECK_FALSE(released.allocator.release_pool({0, 1}));
    CHECK(released.allocator.last_error() == "it != graph_pools.end() INTERNAL ASSERT FAILED");
    const MallocResult block = released.in_pool({0, 1}, kMiB);
    REQUIRE(released.allocator.release_pool({0, 1}));
    CHECK_FALSE(released.allocator.undefined_in_library());
    CHECK_FALSE(released.allocator.release_pool({0, 1}));
    CHECK(released.allocator.last_error() == "uc >= 0 INTERNAL ASSERT FAILED");
    CHECK(released.allocator.undefined_in_library());
    released.allocator.free(block.address);

    Device unused("", version.c_str());
    unused.in_pool({0, 1}, kMiB);
    REQUIRE(unused.allocator.release_pool({0, 1}));
    CHECK_FALSE(unused.allocator.begin_pool({0, 1}));
    CHECK(unused.allocator.last_error() == "it->second->use_count > 0 INTERNAL ASSERT FAILED");
    CHECK(unused.allocator.undefined_in_library() == by_stream);
    CHECK_FALSE(unused.allocator.create_pool({0, 1}, {}));
  }
}

// The search opens a scope of the pool, which fails, and leaves its user behind.
TEST_CASE("a pool for out-of-memory whose scope is open gets a user from the search that fails") {
  Device d("", "2.15", 100);
  REQUIRE(d.allocator.create_pool({0, 1}, {true, false}));
  REQUIRE(d.allocator.begin_pool({0, 1}, 5));
  CHECK(d.allocator.malloc(200 * kMiB, 0).outcome == MallocOutcome::kAssertion);
  CHECK(d.allocator.release_pool({0, 1}));
  CHECK(d.allocator.release_pool({0, 1}));
  CHECK(d.allocator.release_pool({0, 1}));
  CHECK_FALSE(d.allocator.release_pool({0, 1}));
}

TEST_CASE("a small request that found no memory is served from the small blocks of such a pool") {
  for (const char* version : {"2.8", "2.10", "2.15"}) {
    Device d("", version, 40);
    REQUIRE(d.allocator.create_pool({0, 4}, {true, false}));
    const MallocResult spare = d.in_pool({0, 4}, kMiB);
    REQUIRE(spare.ok());
    d.allocator.free(spare.address);
    REQUIRE(d.allocator.malloc(38 * kMiB).ok());
    CHECK(d.allocator.malloc(kMiB).address == spare.address);
  }
}

// Up to 2.9 the option decides whether half a MiB is split off, later whether blocks are
// expandable.
TEST_CASE("what is split off a block of such a pool") {
  for (const char* version : {"2.8", "2.9", "2.10", "2.15"}) {
    INFO(version);
    Device d("", version, 100);
    REQUIRE(d.allocator.create_pool({0, 4}, {true, false}));
    const MallocResult spare = d.in_pool({0, 4}, 40 * kMiB);
    d.allocator.free(spare.address);
    d.allocator.set_config(parse_config("expandable_segments:True", d.profile).value());
    REQUIRE(d.allocator.malloc(60 * kMiB).ok());
    const MallocResult found = d.allocator.malloc(40 * kMiB - kMiB / 2);
    REQUIRE(found.address == spare.address);
    CHECK(found.block_size == 40 * kMiB - (d.profile.minor < 10 ? kMiB / 2 : 0));
  }
}

TEST_CASE("a refusal that is taken back was none") {
  Device d("", "2.15", 40);
  CHECK(d.allocator.malloc(50 * kMiB).outcome == MallocOutcome::kOutOfMemory);
  CHECK(d.allocator.stats().num_ooms == 1);
  d.allocator.retract_oom();
  CHECK(d.allocator.stats().num_ooms == 0);
}

TEST_CASE("a flush of one private pool leaves what waits elsewhere") {
  Device d("", "2.15");
  const MallocResult waits = d.allocator.malloc(30 * kMiB);
  REQUIRE(d.allocator.free_pending(waits.block) == FreeOutcome::kPending);
  const MallocResult mine = d.in_pool({0, 1}, 30 * kMiB);
  REQUIRE(d.allocator.free_pending(mine.block) == FreeOutcome::kPending);
  REQUIRE(d.allocator.release_pool({0, 1}));
  d.allocator.empty_cache({0, 1});
  CHECK(d.reserved() == 30 * kMiB);
  CHECK(d.allocator.stats().active.all.current == 1);
  d.allocator.empty_cache();
  CHECK(d.reserved() == 0);
}
