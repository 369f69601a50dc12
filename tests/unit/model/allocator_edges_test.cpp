// Values on both sides of where a rule of the allocator ends, and what its own books take. Most
// were found by changes of the model that no other test noticed (`make mutate-model`).
#include <string>
#include <vector>

#include "model/rounding.h"
#include "tests/support/allocator_device.h"

using namespace fragscope;
using namespace fragscope::model;

TEST_CASE("S5: the oversize release ends with the block that makes it enough") {
  Device d("max_split_size_mb:64", every_version().c_str(), 300);
  d.alloc("a", 130);
  d.alloc("b", 70);
  d.alloc("c", 66);
  d.free_all({"a", "b", "c"});
  CHECK(d.alloc("x", 200) == 200 * kMiB);  // 130 + 70
  CHECK(d.reserved() == 266);
  CHECK(d.allocator.stats().num_alloc_retries == 0);
}

TEST_CASE("S5: up to 2.4 the oversize release trips over the expandable block that it has chosen") {
  const std::string version = every_expandable_version();
  Device d("max_split_size_mb:64,expandable_segments:True", version.c_str(), 400);
  d.alloc("a", 100);
  d.alloc("b", 90);
  d.free_all({"a", "b"});
  d.allocator.set_config(
      parse_config("max_split_size_mb:64,expandable_segments:False", d.profile).value());
  const bool asserts = d.profile.minor < 5;
  const MallocResult result = d.allocator.malloc(240 * kMiB);
  CHECK(result.outcome == (asserts ? MallocOutcome::kAssertion : MallocOutcome::kAllocated));
  CHECK(d.allocator.last_error() ==
        (asserts ? "!block->expandable_segment_ INTERNAL ASSERT FAILED" : ""));
}

TEST_CASE("S5: up to 2.4 the oversize release trips over an expandable block that is enough") {
  const std::string version = every_expandable_version();
  Device d("max_split_size_mb:64,expandable_segments:True", version.c_str(), 150);
  d.alloc("a", 100);
  d.free("a");
  d.allocator.set_config(
      parse_config("max_split_size_mb:64,expandable_segments:False", d.profile).value());
  const bool asserts = d.profile.minor < 5;
  const MallocResult result = d.allocator.malloc(80 * kMiB);
  CHECK(result.outcome == (asserts ? MallocOutcome::kAssertion : MallocOutcome::kAllocated));
  CHECK(d.allocator.last_error() ==
        (asserts ? "!block->expandable_segment_ INTERNAL ASSERT FAILED" : ""));
}

TEST_CASE("S5: up to 2.3 an odd request may miss what is enough by one byte") {
  Device d("max_split_size_mb:64,roundup_power2_divisions:1", "2.3", 170);
  d.alloc("a", 80);
  d.alloc("b", 66);
  d.free_all({"a", "b"});
  CHECK(d.allocator.malloc(80 * kMiB + 1).ok());
  CHECK(d.reserved() == 82);
}

TEST_CASE("garbage collection goes on while a byte is missing") {
  Device d("garbage_collection_threshold:0.5", every_version().c_str(), 1000);
  REQUIRE(d.allocator.set_memory_fraction((100.0 * kMiB - 1.5) / (1000.0 * kMiB)));
  age_blocks(d);
  d.alloc("n", 40);
  CHECK(d.reserved() == 40);
}

TEST_CASE("throw_on_cudamalloc_oom rejects what goes beyond the share, not what fills it") {
  Device d("throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5", "2.15", 1000);
  d.allocator.set_memory_fraction(1.0);  // else the fraction is the limit
  CHECK(d.alloc("a", 300) == 300 * kMiB);
  CHECK(d.alloc("b", 200) == 200 * kMiB);
  CHECK(d.allocator.malloc(512).outcome == MallocOutcome::kRejected);
}

TEST_CASE("a share that is wanted in whole is no garbage") {
  Device d("garbage_collection_threshold:0.5", "2.15", 1000);
  REQUIRE(d.allocator.set_memory_fraction(0.2));
  d.alloc("a", 60);
  d.alloc("b", 40);
  d.free_all({"a", "b"});
  CHECK(d.alloc("c", 70) == 70 * kMiB);  // 100 of 100 until here
  CHECK(d.reserved() == 170);
}

TEST_CASE("the last division is that of every larger request") {
  const VersionProfile& profile = version_profile("2.15");
  const auto config = parse_config("roundup_power2_divisions:[16384:1,32768:4]", profile);
  REQUIRE(config.ok());
  for (const uint64_t power : {kGiB << 5, kGiB << 6, kGiB << 9}) {
    CHECK(round_request(power + 1, config.value(), profile) == power + power / 4);
  }
  CHECK(round_request((kGiB << 4) + 1, config.value(), profile) == (kGiB << 4) + 512);
}

TEST_CASE("the books tell what there is of each kind") {
  // Each stream has two arenas once it has used both pools, and with expandable segments a range
  // and an unmapped block in each.
  const auto books = [](const char* settings, uint64_t streams) {
    Device d(settings, "2.15", 1 << 12);
    for (uint64_t stream = 0; stream < streams; ++stream) {
      REQUIRE(d.allocator.malloc(512, stream).ok());
      REQUIRE(d.allocator.malloc(2 * kMiB, stream).ok());
    }
    CHECK(d.allocator.book_bytes() == InvariantCheck::count_books(d.allocator));
    return d.allocator.book_bytes();
  };
  for (const char* settings : {"", "expandable_segments:True"}) {
    CHECK(books(settings, 128) > books(settings, 32));
  }
}

TEST_CASE("the books do not grow with expandable pools that come and go") {
  Device d("expandable_segments:True", every_expandable_version().c_str());
  size_t first = 0;
  for (int round = 0; round < 300; ++round) {
    REQUIRE(d.allocator.begin_pool({0, 1}));
    const uint64_t address = d.allocator.malloc(30 * kMiB).address;
    REQUIRE(d.allocator.end_pool({0, 1}));
    d.allocator.free(address);
    REQUIRE(d.allocator.release_pool({0, 1}));
    d.allocator.empty_cache();
    REQUIRE(check_invariants(d.allocator).empty());
    if (round == 0) first = d.allocator.book_bytes();
  }
  CHECK(d.allocator.book_bytes() == first);
}

TEST_CASE("a flush gives back all that still waits, however many have come and gone") {
  Device d("", "2.15");
  std::vector<BlockIndex> waiting;
  for (int i = 0; i < 300; ++i) {
    const BlockIndex block = d.allocator.malloc(30 * kMiB).block;
    CHECK(d.allocator.free_pending(block) == FreeOutcome::kPending);
    waiting.push_back(block);
    if (i % 4 == 0) continue;
    CHECK(d.allocator.complete_block(block, d.allocator.blocks().generation(block)));
    waiting.pop_back();
  }
  d.allocator.process_events();
  CHECK(d.allocator.stats().active.all.current == static_cast<int64_t>(waiting.size()));
  d.allocator.empty_cache();
  CHECK(d.reserved() == 0);
  CHECK_FALSE(d.allocator.events_outstanding());
}

TEST_CASE("up to 2.3 one division leaves odd sizes, and one byte more than a MiB is split off") {
  Device d("roundup_power2_divisions:1", "2.3");
  CHECK(d.allocator.malloc(19 * kMiB - 1).block_size == 19 * kMiB - 1);
  CHECK(d.allocator.malloc(19 * kMiB).block_size == 20 * kMiB);
}

TEST_CASE("the books keep of a range without a page in a pool that is gone the range alone") {
  Device d("expandable_segments:True", every_expandable_version().c_str(), 100);
  size_t first = 0;
  for (int round = 0; round < 300; ++round) {
    REQUIRE(d.allocator.begin_pool({0, 1}));
    REQUIRE_FALSE(d.allocator.malloc(105 * kMiB).ok());
    REQUIRE(d.allocator.end_pool({0, 1}));
    REQUIRE(d.allocator.release_pool({0, 1}));
    d.allocator.empty_cache();
    if (round == 0) first = d.allocator.book_bytes();
  }
  CHECK(d.allocator.book_bytes() < first + 300 * 80);
}
