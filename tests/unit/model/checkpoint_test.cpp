// Checkpoints of private pools in command lists. That they are the released libraries' rules is
// held by tests/oracle (families "checkpoints").
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "model/caching_allocator.h"
#include "model/simulated_segments.h"
#include "tests/support/catch.h"
#include "tests/support/run_list.h"

using namespace fragscope;
using namespace fragscope::model;

namespace {

const std::string kPool = "begin_pool 1\nalloc a 4MiB\nalloc b 4MiB\nalloc c 4MiB\nfree b\n";

uint64_t address_of(const ListResult& result, const std::string& id) {
  for (const CommandResult& each : result.results) {
    if (each.id == id && each.address) return *each.address;
  }
  return 0;
}

std::string problem_of(const std::string& commands) {
  const auto list = parse_commands(commands, "l");
  return list ? "" : list.error().text;
}

}  // namespace

TEST_CASE("a restored checkpoint gives every block its old holder and place") {
  const ListResult result = run_list(
      kPool + "checkpoint k 1\nfree a\nfree c\nalloc d 12MiB\nrestore k\nfree d\nfree a\nfree c\n",
      "2.15");
  const auto outcome = [&](size_t back) { return result.results[result.results.size() - back]; };
  CHECK(outcome(3).outcome == "skipped");  // d was taken away
  CHECK(outcome(2).outcome == "ok");
  CHECK(outcome(1).outcome == "ok");
  CHECK(outcome(2).address == address_of(result, "a"));
  CHECK(result.devices[0].stats.allocated_bytes.all.current == 0);
  CHECK(result.devices[0].stats.segment.all.current == 1);
}

TEST_CASE("what is restored is what was kept, block by block") {
  const ListResult kept = run_list(kPool + "checkpoint k 1\n", "2.15");
  const ListResult restored = run_list(
      kPool + "checkpoint k 1\nfree a\nalloc d 2MiB\nfree c\nalloc e 30MiB\nrestore k\n", "2.15");
  const auto& before = kept.devices[0].segments.front().blocks;
  const auto& after = restored.devices[0].segments.front().blocks;
  REQUIRE(before.size() == after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    CHECK(before[i].address == after[i].address);
    CHECK(before[i].size == after[i].size);
    CHECK(before[i].state == after[i].state);
  }
  // A segment that came later stays, empty.
  REQUIRE(restored.devices[0].segments.size() == 2);
  CHECK(restored.devices[0].segments.back().allocated_size == 0);
}

TEST_CASE("a checkpoint keeps the segments of a pool by address") {
  const VersionProfile& profile = version_profile("2.15");
  const uint64_t total = 1000 * kMiB;
  LocalCapacity capacity(total);
  DeviceMemory memory(0, capacity);
  SimulatedSegments segments(memory, capacity, total);
  CachingAllocator allocator(parse_config("", profile).value(), profile, segments);
  const PoolId pool{0, 1};
  REQUIRE(allocator.begin_pool(pool));
  std::vector<uint64_t> held;
  for (const uint64_t mib : {30, 1, 50, 15, 40}) {
    held.push_back(allocator.malloc(mib * kMiB).address);
  }
  allocator.free(held[2]);
  const auto kept = allocator.checkpoint(pool);
  REQUIRE(kept.has_value());
  REQUIRE(kept->segments.size() == held.size());
  std::vector<uint64_t> starts;
  for (const auto& segment : kept->segments) starts.push_back(segment.front().address);
  CHECK(std::is_sorted(starts.begin(), starts.end()));
  CHECK(std::set<uint64_t>(starts.begin(), starts.end()) ==
        std::set<uint64_t>(held.begin(), held.end()));
}

TEST_CASE("a checkpoint of no pool, or of one without users, is refused") {
  CHECK(run_list("checkpoint k 1\n", "2.15").results.back().message ==
        "Could not find the private pool");
  const std::string unused = "begin_pool 1\nalloc a 4MiB\nend_pool 1\nrelease_pool 1\n";
  CHECK(run_list(unused + "checkpoint k 1\n", "2.15").results.back().message ==
        "Not expected to checkpoint freeable graph");
  CHECK(run_list("checkpoint k 1\nrestore k\n", "2.15").results.back().outcome == "error");
}

// Seen in the libraries of 2.1, 2.6 and 2.15. So no two free blocks of a checkpoint are neighbours.
TEST_CASE("a pool with a block that waits for events has no checkpoint") {
  const std::string used = kPool + "record_stream c 2\nwork 2\n";
  const std::string keep = "checkpoint k 1\nrestore k\n";
  for (const VersionProfile& profile : version_profiles()) {
    INFO(profile.name);
    const std::string version(profile.name);
    // A use is no event yet, the free makes it one.
    CHECK(run_list(used + "end_pool 1\ncheckpoint k 1\n", version).results.back().outcome == "ok");
    const ListResult waits = run_list(used + "end_pool 1\nfree c\n" + keep, version);
    CHECK(waits.results.back().message == "there is no such checkpoint");
    CHECK(waits.results[waits.results.size() - 2].message ==
          "Events should have synchronized when checkpointing block");
    CHECK_FALSE(waits.undefined_from_line);
    const ListResult done =
        run_list(used + "end_pool 1\nfree c\ncomplete 2\nalloc d 1\n" + keep, version);
    CHECK(done.results.back().outcome == "ok");
  }
}

TEST_CASE("a pool that has changed its segments cannot be put back, and the list says so") {
  const ListResult result = run_list(
      kPool + "checkpoint k 1\nrecord_stream a 2\nwork 2\nend_pool 1\nfree a\nrestore k\n", "2.15");
  CHECK(result.results.back().message == "The pool cannot be put back");
  CHECK(result.undefined_from_line == 11u);
}

TEST_CASE("2.12 puts several segments back in an order that nobody can tell") {
  const std::string two = "begin_pool 1\nalloc a 30MiB\nalloc b 30MiB\ncheckpoint k 1\nrestore k\n";
  CHECK(run_list(two, "2.12").undefined_from_line == 5u);
  CHECK_FALSE(run_list(two, "2.11").undefined_from_line);
  CHECK_FALSE(run_list(two, "2.13").undefined_from_line);
  const std::string one = kPool + "checkpoint k 1\nfree a\nfree c\nrestore k\n";
  CHECK_FALSE(run_list(one, "2.12").undefined_from_line);
}

// The pool is dropped while a block of it lives; then the block's unmapped neighbours go.
TEST_CASE("blocks of a pool that PyTorch has dropped can still be freed and flushed") {
  const ListResult result = run_list(
      "begin_pool 3\nalloc a 104858111\nfree a\nalloc b 20972031\nend_pool 3\nrelease_pool 3\n"
      "empty_cache\nfree b\nbegin_pool 1\nend_pool 1\nrelease_pool 1\nempty_cache\n",
      "2.12", "expandable_segments:True");
  CHECK(result.undefined_from_line == 7u);
  CHECK(result.devices[0].stats.reserved_bytes.all.current == 0);
}

TEST_CASE("lists with checkpoints are checked and written back") {
  CHECK(problem_of("restore k\n") == "l:1: there is no checkpoint 'k'");
  CHECK(problem_of("checkpoint k\n") == "l:1: checkpoint wants NAME POOL");
  CHECK(problem_of("checkpoint k 0\n") == "l:1: a pool is N or N.M and not 0, not '0'");
  CHECK(problem_of("checkpoint k 1\ncheckpoint k 1\n") == "l:2: there is a checkpoint 'k'");
  CHECK(problem_of("alloc a 1\nfree a\ncheckpoint k 1\nalloc a 1\n") ==
        "l:4: 'a' was used before: behind a checkpoint every ID is a new one");
  const std::string text = "alloc a 1\ncheckpoint k 1\nfree a\nrestore k\nfree a\n";
  const auto list = parse_commands(text, "l");
  REQUIRE(list.ok());
  CHECK(format_commands(list.value()) == text);
}

TEST_CASE("a checkpoint of a pool that is gone cannot be put back") {
  const ListResult result =
      run_list(kPool +
                   "checkpoint k 1\nfree a\nfree c\nend_pool 1\nrelease_pool 1\n"
                   "empty_cache\nrestore k\n",
               "2.15");
  CHECK(result.results.back().message == "Could not find the private pool");
}

// The pool has come again, with another segment at the same address.
TEST_CASE("a segment that is smaller or larger than it was cannot be put back") {
  const std::string gone = "end_pool 1\nrelease_pool 1\nempty_cache\nbegin_pool 1\n";
  const std::string larger = kPool + "checkpoint k 1\nfree a\nfree c\n" + gone;
  const ListResult into_larger = run_list(larger + "alloc d 30MiB\nrestore k\n", "2.15");
  CHECK(address_of(into_larger, "d") == address_of(into_larger, "a"));
  CHECK(into_larger.results.back().message == "The pool cannot be put back");
  const std::string smaller =
      "begin_pool 1\nalloc a 40MiB\nfree a\nalloc b 12MiB\ncheckpoint k 1\nfree b\n" + gone;
  const ListResult into_smaller = run_list(smaller + "alloc d 12MiB\nrestore k\n", "2.15");
  CHECK(address_of(into_smaller, "d") == address_of(into_smaller, "a"));
  CHECK(into_smaller.results.back().message == "The pool cannot be put back");
}

TEST_CASE("a segment in which a later block still waits cannot be put back") {
  const ListResult result = run_list(
      kPool + "checkpoint k 1\nrecord_stream c 2\nwork 2\nend_pool 1\nfree c\nrestore k\n", "2.15");
  CHECK(result.results.back().message == "The pool cannot be put back");
}

TEST_CASE("what is put back is cut as it was, whatever the settings say by now") {
  const ListResult result = run_list(
      "begin_pool 1\nalloc a 40MiB\nfree a\nalloc b 25MiB\nalloc c 3MiB\ncheckpoint k 1\n"
      "settings max_split_size_mb:21\nfree b\nfree c\nrestore k\n",
      "2.15");
  REQUIRE(result.results.back().outcome == "ok");
  const auto& blocks = result.devices[0].segments.front().blocks;
  REQUIRE(blocks.size() == 3);
  CHECK(blocks[0].size == 25 * kMiB);
  CHECK(blocks[1].size == 3 * kMiB);
}

TEST_CASE("a checkpoint belongs to its device, whichever is in force when it is put back") {
  const ListResult result = run_list(
      "device 1\n" + kPool + "checkpoint k 1\nfree a\nfree c\ndevice 0\nrestore k\n", "2.15");
  CHECK(result.results.back().outcome == "ok");
  CHECK(result.devices[1].stats.allocated_bytes.all.current == 8 * kMiB);
  CHECK(problem_of("checkpoint k 1\nrestore k 1\n") == "l:2: restore wants NAME");
  CHECK(problem_of("checkpoint k 1\nrestore\n") == "l:2: restore wants NAME");
}

// Seen in the libraries of 2.1 to 2.15: from 2.4 on with the end of its uses, up to 2.12, and with
// events for them later.
TEST_CASE("what was freed under a scope before a checkpoint") {
  const std::string list =
      kPool + "record_stream c 2\nwork 2\nfree c\nend_pool 1\ncheckpoint k 1\n";
  for (const VersionProfile& profile : version_profiles()) {
    INFO(profile.name);
    const CommandResult result = run_list(list, std::string(profile.name)).results.back();
    CHECK(result.message ==
          (profile.minor < 13 ? "" : "Events should have synchronized when checkpointing block"));
    CHECK(result.trace.size() == (profile.minor >= 4 && profile.minor < 13 ? 1 : 0));
  }
}

// Up to 2.3 such a block lies free beside another one, and PyTorch finds the two joined.
TEST_CASE("a checkpoint with two free neighbours cannot be put back") {
  const std::string pool = "begin_pool 1\nalloc a 4MiB\nalloc b 4MiB\nalloc c 4MiB\n";
  for (const char* second : {"b", "c"}) {
    const std::string name(second);
    const std::string list = pool + "free " + (name == "b" ? "a" : "b") + "\nrecord_stream " +
                             name + " 2\nwork 2\nfree " + name +
                             "\nend_pool 1\ncheckpoint k 1\ncomplete 2\nalloc h 512\nrestore k\n";
    CHECK(run_list(list, "2.3").results.back().message == "The pool cannot be put back");
    CHECK(run_list(list, "2.4").results.back().outcome == "ok");
  }
}
