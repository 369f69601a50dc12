// The scenarios S1 … S13 of the allocator's specification, as a table of requests and figures that
// were computed by hand and reproduced on the released libraries. Sizes in MiB unless stated.
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/rounding.h"
#include "tests/support/allocator_device.h"

using namespace fragscope;
using namespace fragscope::model;

namespace {

// New segments get falling addresses.
class DescendingSegments final : public SegmentProvider {
 public:
  std::optional<uint64_t> device_malloc(uint64_t bytes) override { return next_ -= bytes; }
  void device_free(uint64_t, uint64_t) override {}
  DeviceMemoryInfo memory_info() override { return {1ull << 40, 1ull << 40}; }

 private:
  uint64_t next_ = 1ull << 45;
};

}  // namespace

TEST_CASE("S1: size classes, segments and tails") {
  const std::string version = every_version();
  CAPTURE(version);
  Device d("", version.c_str());
  const double byte = 1.0 / kMiB;
  CHECK(d.alloc("a", byte) == 512);
  CHECK(d.alloc("b", 513 * byte) == 1024);
  CHECK(d.alloc("c", 1) == kMiB);
  CHECK(d.alloc("d", 1 + byte) == 1049088);
  CHECK(d.alloc("e", 9) == 9 * kMiB);
  CHECK(d.alloc("f", 10) == 10 * kMiB);
  CHECK(d.alloc("g", 10 + byte) == 10486272);
  CHECK(d.alloc("h", 19) == 20 * kMiB);
  CHECK(d.reserved() == 64.0);
  CHECK(d.allocator.stats().segment.all.current == 5);
  CHECK(d.allocator.stats().requested_bytes.all.current ==
        1 + 513 + static_cast<int64_t>(50 * kMiB) + 2);
}

TEST_CASE("S2: a stream's cached block is not given to another stream") {
  Device d("", every_version().c_str());
  d.alloc("a", 100, 1);
  d.free("a");
  d.alloc("b", 100, 2);
  CHECK(d.reserved() == 200);
  CHECK(d.allocated() == 100);
}

TEST_CASE("S3: expandable segments map whole pages") {
  const std::string version = every_expandable_version();
  for (const bool expandable : {false, true}) {
    const char* settings = expandable ? "expandable_segments:True" : "";
    Device d(settings, version.c_str());
    for (int i = 0; i < 8; ++i) d.alloc("x" + std::to_string(i), 16);
    CHECK(d.reserved() == (expandable ? 140 : 128));
    CHECK(d.allocator.stats().segment.all.current == (expandable ? 0 : 8));
    Device e(settings, version.c_str());
    e.alloc("a", 2);
    e.alloc("b", 0.5);
    CHECK(e.reserved() == 22);
  }
}

TEST_CASE("S4: max_split_size keeps large blocks whole") {
  Device d("max_split_size_mb:64", every_version().c_str());
  d.alloc("a", 100);
  d.free("a");
  CHECK(d.alloc("b", 50) == 50 * kMiB);
  CHECK(d.reserved() == 150);
  CHECK(d.alloc("c", 81) == 100 * kMiB);
  CHECK(d.allocated() == 150);
  d.free("c");
  d.alloc("d", 80);
  CHECK(d.reserved() == 230);
}

TEST_CASE("S5: the oversize release") {
  const std::string version = every_version();
  Device d("max_split_size_mb:64", version.c_str(), 400);
  for (const double mib : {100, 120, 150}) d.alloc(std::to_string(mib), mib);
  d.free_all({std::to_string(100.0), std::to_string(120.0), std::to_string(150.0)});
  SECTION("one block that is large enough") {
    CHECK(d.alloc("x", 70) == 70 * kMiB);
    CHECK(d.reserved() == 340);
  }
  SECTION("the largest blocks until they are enough") {
    CHECK(d.alloc("x", 200) == 200 * kMiB);
    CHECK(d.reserved() == 300);
  }
  CHECK(d.allocator.stats().num_alloc_retries == 0);
}

TEST_CASE("S6: garbage collection frees all blocks of average age") {
  const std::string version = every_version();
  Device d("garbage_collection_threshold:0.5", version.c_str(), 1000);
  REQUIRE(d.allocator.set_memory_fraction(0.9999));
  for (const double mib : {200, 150, 120, 100}) d.alloc(std::to_string(mib), mib);
  SECTION("whole blocks") {
    for (const double mib : {200, 150, 120, 100}) d.free(std::to_string(mib));
    d.alloc("x", 210);
    CHECK(d.reserved() == 210);
  }
  SECTION("S6b: split blocks stay") {
    d.free(std::to_string(200.0));
    d.alloc("k", 30);
    d.free(std::to_string(150.0));
    d.alloc("l", 130);
    d.free(std::to_string(120.0));
    d.free(std::to_string(100.0));
    d.alloc("x", 210);
    CHECK(d.reserved() == 560);
  }
}

TEST_CASE("requests that cached blocks serve make the others older") {
  const std::string version = every_version();
  Device d("garbage_collection_threshold:0.5", version.c_str(), 1000);
  REQUIRE(d.allocator.set_memory_fraction(0.1));
  age_blocks(d);
  // 80 of at most 50: 30 are to go. x alone is of average age, and is enough.
  d.alloc("n", 40);
  CHECK(d.reserved() == 90);
}

TEST_CASE("what is served beside the cache is no garbage of it") {
  const std::string version = every_version();
  Device d("garbage_collection_threshold:0.5", version.c_str(), 1000);
  REQUIRE(d.allocator.set_memory_fraction(0.1));
  d.allocator.set_outside_reserved(60 * kMiB);  // check_invariants() knows no such memory
  const uint64_t x = d.allocator.malloc(30 * kMiB).address;
  d.allocator.free(x);
  const uint64_t n = d.allocator.malloc(40 * kMiB).address;  // the cache has 30 of at most 50
  CHECK(d.reserved() == 60 + 30 + 40);
  d.allocator.free(n);
  CHECK(d.allocator.malloc(50 * kMiB).ok());  // 70: x, passed over more often, is enough
  CHECK(d.reserved() == 60 + 40 + 50);
}

TEST_CASE("what is served beside the cache is one large segment while there is any") {
  Device d("", "2.15");
  const auto stats = [&] { return d.allocator.stats(); };
  const auto segments = [&] { return stats().segment.kind[static_cast<size_t>(PoolKind::kLarge)]; };
  d.allocator.set_outside_reserved(60 * kMiB);
  d.allocator.set_outside_reserved(60 * kMiB);
  CHECK(segments().current == 1);
  CHECK(segments().allocated == 1);
  d.allocator.set_outside_reserved(80 * kMiB);
  CHECK(segments().current == 1);
  CHECK(segments().freed == 1);
  CHECK(stats().num_device_alloc == 2);
  CHECK(stats().num_device_free == 1);
  CHECK(stats().reserved_bytes.all.current == 80 * kMiB);
  d.allocator.set_outside_reserved(0);
  CHECK(segments().current == 0);
  CHECK(segments().freed == 2);
  CHECK(stats().num_device_free == 2);
  CHECK(stats().reserved_bytes.all.current == 0);
  CHECK(stats().reserved_bytes.all.peak == 80 * kMiB);
}

TEST_CASE("a block beside the cache is counted from its request to the end of its events") {
  Device d("", "2.15");
  using Counts = std::array<int64_t, 6>;
  const auto counts = [&] {
    const DeviceStats& stats = d.allocator.stats();
    return Counts{stats.allocation.all.current,      stats.allocated_bytes.all.current,
                  stats.active.all.current,          stats.active_bytes.all.current,
                  stats.requested_bytes.all.current, stats.allocated_bytes.kind[1].peak};
  };
  d.allocator.begin_outside_block(800, 700);
  CHECK(counts() == Counts{1, 800, 1, 800, 700, 800});
  d.allocator.begin_outside_block(400, 400);
  CHECK(counts() == Counts{2, 1200, 2, 1200, 1100, 1200});
  d.allocator.free_outside_block(800);
  CHECK(counts() == Counts{1, 400, 2, 1200, 1100, 1200});
  d.allocator.complete_outside_block(800, 700);
  CHECK(counts() == Counts{1, 400, 1, 400, 400, 1200});
}

TEST_CASE("a refusal counts what is served beside the cache as reserved") {
  Device d("", "2.15", 200);
  d.alloc("a", 30);
  d.allocator.set_outside_reserved(60 * kMiB);
  CHECK(d.allocator.malloc(190 * kMiB).outcome == MallocOutcome::kOutOfMemory);
  CHECK(d.allocator.last_oom().reserved == (30 + 60) * kMiB);
  CHECK(d.allocator.last_oom().allocated == 30 * kMiB);
}

TEST_CASE("the books do not grow with what comes and goes") {
  const char* const settings = GENERATE("", "expandable_segments:True");
  Device d(settings, "2.15");
  size_t first = 0;
  for (int round = 0; round < 300; ++round) {
    const uint64_t address = d.allocator.malloc(30 * kMiB, 7).address;
    d.allocator.record_stream(address, 9);
    d.allocator.free(address);
    d.allocator.complete(9);
    d.allocator.empty_cache();
    if (round == 0) first = d.allocator.book_bytes();
  }
  CHECK(first > 0);
  CHECK(d.allocator.book_bytes() == first);
}

TEST_CASE("S6: fraction 1.0 is a limit only up to 2.9") {
  for (const VersionProfile& profile : version_profiles()) {
    Device d("garbage_collection_threshold:0.5", std::string(profile.name).c_str(), 1000);
    REQUIRE(d.allocator.set_memory_fraction(1.0));
    CHECK_FALSE(d.allocator.set_memory_fraction(1.5));
    for (const double mib : {200, 150, 120, 100}) d.alloc(std::to_string(mib), mib);
    for (const double mib : {200, 150, 120, 100}) d.free(std::to_string(mib));
    d.alloc("x", 210);
    CHECK(d.reserved() == (profile.minor < 10 ? 210 : 780));
  }
}

TEST_CASE("S7: pinned segments, four settings") {
  const std::string version = every_version();
  const auto run = [&](Device& d) {
    d.alloc("a", 530);
    d.free("a");
    d.alloc("b", 270);
    d.alloc("c", 530);
    d.free("b");
    d.alloc("k", 2);
    d.free("c");
    return d.alloc("d", 800);
  };
  SECTION("default: a false out-of-memory") {
    Device d("", version.c_str(), 1300);
    CHECK(run(d) == 0);
    CHECK(d.allocated() == 2);
    CHECK(d.reserved() == 530);
    CHECK(d.allocator.last_oom().segment == 800 * kMiB);
    CHECK(d.allocator.stats().num_ooms == 1);
  }
  SECTION("max_split_size 21") {
    Device d("max_split_size_mb:21", version.c_str(), 1300);
    CHECK(run(d) == 800 * kMiB);
    CHECK(d.reserved() == 820);
    CHECK(d.allocator.stats().num_alloc_retries == 0);
  }
  SECTION("expandable") {
    if (version == "2.0") return;
    Device d("expandable_segments:True", version.c_str(), 1300);
    CHECK(run(d) == 800 * kMiB);
    CHECK(d.reserved() == 820);
  }
  SECTION("garbage collection does not help") {
    Device d("garbage_collection_threshold:0.6", version.c_str(), 1300);
    REQUIRE(d.allocator.set_memory_fraction(1.0));
    CHECK(run(d) == 0);
  }
}

TEST_CASE("S8: the oversize rule and expandable blocks") {
  const std::string version = every_expandable_version();
  Device d("max_split_size_mb:64,expandable_segments:True", version.c_str());
  d.alloc("a", 100);
  SECTION("the free block before the unmapped tail is used") {
    d.free("a");
    d.alloc("b", 50);
    CHECK(d.reserved() == 100);
  }
  SECTION("not with a live block between") {
    d.alloc("l", 5);
    d.alloc("m", 15);
    d.free("a");
    d.alloc("b", 50);
    CHECK(d.reserved() == 180);
  }
}

TEST_CASE("S9: only whole pages are unmapped") {
  Device d("expandable_segments:True", every_expandable_version().c_str());
  for (const char* name : {"a", "b", "c"}) d.alloc(name, 30);
  CHECK(d.reserved() == 100);
  d.free("b");
  d.allocator.empty_cache();
  CHECK(d.reserved() == 80);
  d.free_all({"a", "c"});
  d.allocator.empty_cache();
  CHECK(d.reserved() == 0);
  CHECK(d.allocator.segments().empty());
  CHECK(check_invariants(d.allocator).empty());
}

TEST_CASE("S10: which of two equal blocks comes first") {
  for (const VersionProfile& profile : version_profiles()) {
    DescendingSegments provider;
    CachingAllocator allocator({}, profile, provider);
    const auto a = allocator.malloc(30 * kMiB);
    const auto b = allocator.malloc(30 * kMiB);
    const auto c = allocator.malloc(30 * kMiB);
    for (const auto& r : {a, b, c}) allocator.free(r.address);
    CHECK(allocator.malloc(30 * kMiB).address == (profile.minor < 12 ? c.address : a.address));
  }
}

TEST_CASE("S11: best fit and ties") {
  Device d("", every_version().c_str());
  d.alloc("a", 40);
  d.alloc("b", 40);
  d.alloc("c", 44);
  const uint64_t base = d.at["a"];
  d.free_all({"c", "b", "a"});
  CHECK(d.alloc("x", 39) == 40 * kMiB);
  CHECK(d.at["x"] == base);
  CHECK(d.alloc("y", 38) == 38 * kMiB);
  CHECK(d.at["y"] == base + 40 * kMiB);
  CHECK(d.alloc("z", 40) == 40 * kMiB);
  CHECK(d.at["z"] == base + 80 * kMiB);
}

TEST_CASE("S12: a page that cannot be mapped") {
  Device d("expandable_segments:True", every_expandable_version().c_str(), 100);
  d.alloc("a", 50);
  CHECK(d.reserved() == 60);
  CHECK(d.alloc("b", 60) == 0);
  CHECK(d.reserved() == 60);
  CHECK(d.allocator.last_oom().segment == 60 * kMiB);
  CHECK(d.alloc("c", 50) == 50 * kMiB);
  CHECK(d.reserved() == 100);
}

TEST_CASE("S13: no search after the flush") {
  Device d("", every_version().c_str(), 100);
  d.alloc("x", 60);
  d.alloc("y", 40);
  d.free("x");
  d.alloc("live", 10);
  d.alloc("z", 50);
  d.allocator.record_stream(d.at["z"], 7);
  d.allocator.work(7);
  d.free("z");
  CHECK(d.allocator.stats().active.all.current == 3);
  CHECK(d.alloc("w", 45) == 0);
  CHECK(d.allocator.stats().active.all.current == 2);
  CHECK(d.alloc("w", 45) == 45 * kMiB);
}

TEST_CASE("a memory fraction allows exactly what it says") {
  Device d("", "2.15", 100);
  REQUIRE(d.allocator.set_memory_fraction(0.4));
  CHECK(d.allocator.allowed_bytes() == 40 * kMiB);
  CHECK(d.alloc("a", 2) == 2 * kMiB);  // a segment of 20
  CHECK(d.alloc("b", 20) == 20 * kMiB);
  CHECK(d.reserved() == 40);
  CHECK(d.alloc("c", 19) == 0);
  CHECK(d.allocator.last_oom().allowed == 40 * kMiB);
  CHECK_FALSE(d.allocator.set_memory_fraction(-0.001));
  CHECK_FALSE(d.allocator.set_memory_fraction(1.001));
  CHECK(d.allocator.set_memory_fraction(0));
  CHECK(d.allocator.allowed_bytes() == 0);
}

TEST_CASE("a flush waits for what was freed under a scope that has ended") {
  for (const char* version : {"2.1", "2.6", "2.9", "2.12"}) {
    Device d("", version);
    d.alloc("a", 30);
    REQUIRE(d.allocator.record_stream(d.at.at("a"), 5));
    d.allocator.work(5);
    REQUIRE(d.allocator.begin_pool({0, 3}));
    CHECK(d.allocator.free(d.at.at("a")) == FreeOutcome::kPending);
    REQUIRE(d.allocator.end_pool({0, 3}));
    CHECK(d.reserved() == 30);
    CHECK(d.allocator.empty_cache() == EmptyCacheOutcome::kDone);
    INFO(version);
    CHECK(d.reserved() == 0);
    CHECK(d.allocator.stats().num_sync_all_streams == 1);
  }
}

TEST_CASE("a block that is freed while it waits for another use waits for both") {
  Device d("", "2.15");
  d.alloc("a", 30);
  const BlockIndex block = d.allocator.find(d.at.at("a"));
  REQUIRE(d.allocator.record_stream(d.at.at("a"), 5));
  d.allocator.work(5);
  CHECK(d.allocator.free_pending(block) == FreeOutcome::kPending);
  CHECK(d.allocator.blocks().events(block) == 2);
  CHECK(d.allocator.complete_block(block, d.allocator.blocks().generation(block)));
  d.allocator.process_events();
  CHECK(d.allocator.blocks().events(block) == 1);
  CHECK(d.allocator.stats().active.all.current == 1);
  d.allocator.complete(5);
  d.allocator.process_events();
  CHECK(d.allocator.stats().active.all.current == 0);
  CHECK_FALSE(d.allocator.complete_block(block, d.allocator.blocks().generation(block)));
}

TEST_CASE("events are looked at only while there are any") {
  Device d("", "2.15");
  for (int round = 0; round < 3; ++round) {
    d.alloc("a", 3);
    REQUIRE(d.allocator.record_stream(d.at.at("a"), 5));
    d.allocator.work(5);
    CHECK(d.allocator.free(d.at.at("a")) == FreeOutcome::kPending);
    CHECK(d.allocator.events_outstanding());
    d.allocator.complete(5);
    d.allocator.process_events();
    CHECK_FALSE(d.allocator.events_outstanding());
    CHECK(d.allocator.stats().active.all.current == 0);
  }
}

TEST_CASE("a private pool without users is gone after the flush, and may come again") {
  Device d("", "2.15");
  for (uint64_t round = 0; round < 12; ++round) {
    for (uint64_t id = 1; id <= 3; ++id) {
      REQUIRE(d.allocator.begin_pool({0, id}));
      d.alloc("a", 30);
      REQUIRE(d.allocator.end_pool({0, id}));
      CHECK_FALSE(d.allocator.end_pool({0, id}));
      d.free("a");
    }
    CHECK(d.reserved() == 90);
    for (uint64_t id = 1; id <= 3; ++id) {
      CHECK(d.allocator.release_pool({0, id}));
      CHECK_FALSE(d.allocator.release_pool({0, id}));
    }
    d.allocator.empty_cache();
    CHECK(d.reserved() == 0);
    CHECK_FALSE(d.allocator.release_pool({0, 1}));
  }
}

TEST_CASE("a division finer than a size of few bytes doubles its power of two") {
  AllocatorConfig config;
  config.roundup_power2_divisions.fill(1ull << 20);
  const VersionProfile& profile = version_profile("2.15");
  CHECK(round_request(513ull << 20, config, profile) == (513ull << 20));
  config.roundup_power2_divisions.fill(1024);
  CHECK(round_request(1024 * 512 + 1, config, profile) == 1024 * 512 + 512);
}

// Found by random settings strings: every power of two is accepted as a number of divisions.
TEST_CASE("divisions whose step vanishes round to the next power of two") {
  AllocatorConfig config;
  config.roundup_power2_divisions.fill(1ull << 63);
  const VersionProfile& profile = version_profile("2.15");
  CHECK(round_request(1025, config, profile) == 2048);
  CHECK(round_request(1048577, config, profile) == 2097152);
  CHECK(round_request(4096, config, profile) == 4096);
}

// As in "requests that cached blocks serve make the others older", but 30 MiB and a byte are to go:
// x is not enough, and all others are as old as the average of the rest.
// Entry 15 of the table is all from 32 GiB on.
// Its address space is never given back, so the range is kept, but not its block.
