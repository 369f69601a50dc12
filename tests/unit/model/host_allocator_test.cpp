// The pinned host allocator's rules, one release against another. That they are the released
// libraries' rules is held by the digests (oracle_digests_test.cpp).
#include "model/host_allocator.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/run_list.h"

using namespace fragscope;
using namespace fragscope::model;

namespace {

std::vector<uint64_t> block_sizes(const ListResult& result) {
  std::vector<uint64_t> sizes;
  for (const CommandResult& r : result.results) {
    if (r.block_size) sizes.push_back(*r.block_size);
  }
  return sizes;
}

std::string problem_of(const std::string& commands) {
  const auto list = parse_commands(commands, "l");
  return list ? "" : list.error().text;
}

// Pinned memory of the newest release; no stream ever has work.
struct IdleHost {
  struct Clock final : StreamClock {
    uint64_t submitted(DeviceStream) override { return 0; }
    uint64_t completed(DeviceStream) override { return 0; }
  } clock;
  SimulatedHostMemory memory;
  const VersionProfile& profile = version_profiles().back();
  HostAllocator allocator{parse_config("", profile).value(), profile, memory, clock};
};

}  // namespace

TEST_CASE("pinned requests are rounded to powers of two") {
  const std::string list =
      "host_alloc a 1\nhost_alloc b 3\nhost_alloc c 4096\nhost_alloc d 5000\n"
      "host_alloc e 150MiB\nhost_alloc f 0\n";
  for (const char* version : {"2.1", "2.5", "2.15"}) {
    CHECK(block_sizes(run_list(list, version)) ==
          std::vector<uint64_t>{1, 4, 4096, 8192, 256 * kMiB});
  }
  const ListResult limited = run_list(list, "2.13", "pinned_max_round_threshold_mb:100");
  CHECK(block_sizes(limited).back() == 150 * kMiB);
  CHECK(limited.results.back().outcome == "null");
}

TEST_CASE("a pinned block that nobody holds can neither be freed nor used") {
  IdleHost host;
  HostAllocator& allocator = host.allocator;
  const uint64_t address = allocator.allocate(1000).address;
  CHECK_FALSE(allocator.free(address + 1));
  CHECK(allocator.record_event(address, {}));
  CHECK(allocator.free(address));
  CHECK_FALSE(allocator.free(address));
  CHECK_FALSE(allocator.record_event(address, {}));
  CHECK(allocator.allocate(1000).address != 0);
  CHECK(allocator.stats().num_host_alloc == 1);
}

TEST_CASE("what a release lacks is an error that names it") {
  const auto message = [](const std::string& command, const std::string& version) {
    return run_list("host_alloc a 1000\n" + command + "\n", version).results.back().message;
  };
  for (const char* command : {"host_begin_pool 1", "host_end_pool 1", "host_release_pool 1"}) {
    CHECK(message(command, "2.11") == "torch 2.11 has no private pools of host memory");
    CHECK(message(command, "2.12") != "torch 2.12 has no private pools of host memory");
  }
  for (const char* command : {"host_reset_peak_stats", "host_reset_accumulated_stats"}) {
    CHECK(message(command, "2.7") == "torch 2.7 has no statistics of host memory");
    CHECK(message(command, "2.8").empty());
  }
  CHECK(message("create_pool 1 use_on_oom", "2.7") == "torch 2.7 has no use_on_oom pools");
  CHECK(message("create_pool 1 use_on_oom", "2.8").empty());
  CHECK(message("create_pool 1 no_split", "2.9") == "torch 2.9 has no no_split pools");
  CHECK(message("create_pool 1 no_split", "2.10").empty());
}

TEST_CASE("up to 2.4 a small pinned request may take any larger block, later only its bucket") {
  const std::string list = "host_alloc big 64MiB\nhost_free big\nhost_alloc small 10KiB\n";
  CHECK(block_sizes(run_list(list, "2.4")).back() == 64 * kMiB);
  CHECK(block_sizes(run_list(list, "2.5")).back() == 16 * kKiB);
}

TEST_CASE("a pinned block comes back when the streams that used it are done") {
  const std::string list =
      "host_alloc a 1000\nwork 1\nhost_record a 1\nhost_free a\nhost_alloc b 1000\ncomplete 1\n"
      "host_alloc c 1000\n";
  const ListResult result = run_list(list, "2.15");
  CHECK(result.results[4].address != result.results[0].address);
  CHECK(result.results[6].address == result.results[0].address);
  REQUIRE(result.host.has_value());
  CHECK(result.host->num_host_alloc == 2);
  CHECK(result.host->active_requests.current == 2);
}

TEST_CASE("unrounded sizes: in 2.13 a block may be smaller than its request") {
  const std::string list = "host_alloc a 5MiB\nhost_free a\nhost_alloc b 6MiB\n";
  const std::string settings = "pinned_max_round_threshold_mb:1";
  CHECK(block_sizes(run_list(list, "2.13", settings)).back() == 5 * kMiB);
  CHECK(block_sizes(run_list(list, "2.14", settings)).back() == 6 * kMiB);
  CHECK(block_sizes(run_list(list, "2.15", settings)).back() == 6 * kMiB);
}

TEST_CASE("what the statistics of pinned memory miss, release by release") {
  const std::string freed = "host_alloc a 1000\nhost_free a\n";
  CHECK(run_list(freed, "2.9").host->active_requests.current == 0);
  CHECK(run_list(freed, "2.12").host->active_requests.current == 1);
  CHECK(run_list(freed, "2.13").host->active_requests.current == 0);
  const std::string waited = "host_alloc a 1000\nhost_record a 1\nhost_free a\nhost_alloc b 9\n";
  CHECK(run_list(waited, "2.12").host->active_bytes.current == 1024 + 1 + 16);
  CHECK(run_list(waited, "2.13").host->active_bytes.current == 16);
}

TEST_CASE("host_empty_cache gives cached blocks back, but not the reserve segment") {
  const std::string list = "host_alloc a 1MiB\nhost_free a\nhost_empty_cache\n";
  const ListResult plain = run_list(list, "2.15");
  REQUIRE(plain.results[2].host_calls.size() == 1);
  CHECK(plain.results[2].host_calls[0].kind == HostCallKind::kFree);
  const ListResult reserved = run_list(list, "2.15", "pinned_reserve_segment_size_mb:4");
  REQUIRE(reserved.results[0].host_calls.size() == 1);
  CHECK(reserved.results[0].host_calls[0].bytes == 4 * kMiB);
  CHECK(reserved.results[2].host_calls.empty());
  CHECK(reserved.host->allocations.current == 0);
  CHECK(reserved.host->timed_allocs == 1);  // the segment
  CHECK(plain.host->timed_allocs == 1);
}

// A block that still waits does not make the flush fail.
TEST_CASE("in 2.13 and 2.14 the flush of a private pool fails over a block whose events are done") {
  const std::string list =
      "host_begin_pool 1 0\nhost_alloc a 5000 0\nwork 0\nhost_record a 0\nhost_free a\n"
      "host_end_pool 1\nhost_release_pool 1\nhost_empty_cache\ncomplete 0\nhost_empty_cache\n"
      "host_empty_cache\n";
  for (const char* version : {"2.13", "2.14"}) {
    const ListResult failing = run_list(list, version);
    CHECK(failing.results[7].outcome == "ok");
    CHECK(failing.results[9].outcome == "error");
    CHECK(failing.results[9].message == "Resource deadlock avoided");
    CHECK(failing.results[9].host_calls.empty());
    CHECK(failing.results[10].outcome == "ok");
    CHECK(failing.results[10].host_calls.empty());
    CHECK(failing.host->active_requests.current == 1);
    CHECK(failing.host->allocations.current == 1);
  }
  for (const char* version : {"2.12", "2.15"}) {
    const ListResult sound = run_list(list, version);
    CHECK(sound.results[9].outcome == "ok");
    CHECK(sound.results[9].host_calls.size() == 1);
    CHECK(sound.host->allocations.current == 0);
  }
}

TEST_CASE("a host pool's scope is opened once, and only while it has users") {
  const ListResult result = run_list(
      "host_begin_pool 1 2\nhost_begin_pool 1\nhost_end_pool 1\nhost_end_pool 1\n"
      "host_release_pool 1\nhost_release_pool 1\nhost_release_pool 1\nhost_begin_pool 1\n"
      "host_release_pool 9\n",
      "2.14");
  CHECK(result.results[1].message == "beginAllocateToPool: already recording to mempool_id");
  CHECK(result.results[2].outcome == "ok");
  CHECK(result.results[3].message == "endAllocatePool: not currently recording to mempool_id");
  CHECK(result.results[5].outcome == "ok");  // the refused scope has added a user
  CHECK(result.results[6].message == "uc >= 0 INTERNAL ASSERT FAILED");
  CHECK(result.results[8].message == "Argument passed to at() was not in the map.");
  CHECK(result.results[7].message == "it->second->use_count > 0 INTERNAL ASSERT FAILED");
}

TEST_CASE("a host pool is forgotten by the flush that takes its last block, and may come again") {
  const std::string pool = "host_begin_pool 1\nhost_alloc a 1000\nhost_alloc b 1000\nhost_free a\n";
  const std::string ended = "host_end_pool 1\nhost_release_pool 1\nhost_empty_cache\n";
  const std::string again = "host_begin_pool 1\n";
  for (const char* version : {"2.12", "2.14", "2.15"}) {
    INFO(version);
    const ListResult held = run_list(pool + ended + again, version);
    CHECK(held.results.back().message == "it->second->use_count > 0 INTERNAL ASSERT FAILED");
    const ListResult gone = run_list(pool + "host_free b\n" + ended + again, version);
    CHECK(gone.results.back().outcome == "ok");
    const ListResult later = run_list(
        pool + ended + "host_free b\nhost_empty_cache\nhost_release_pool 1\n" + again, version);
    CHECK(later.results[later.results.size() - 2].message ==
          "Argument passed to at() was not in the map.");
    CHECK(later.results.back().outcome == "ok");
  }
}

// As in the device allocator (private_pools_test.cpp): by pool's number, whichever half has it.
TEST_CASE("a flush walks the pools of pinned memory in the order of PyTorch's hash map") {
  const bool graphs = GENERATE(false, true);
  std::string list;
  for (const std::string number : {"6", "1", "3"}) {
    const std::string pool = graphs ? number + ".0" : number;
    list += "host_begin_pool " + pool + "\nhost_alloc a" + number + " 1000\nhost_free a" + number +
            "\nhost_end_pool " + pool + "\nhost_release_pool " + pool + "\n";
  }
  const ListResult result = run_list(list + "host_empty_cache\n", "2.15");
  const auto& calls = result.results.back().host_calls;
  REQUIRE(calls.size() == 3);
  CHECK(calls[0].address == result.results[6].address);
  CHECK(calls[1].address == result.results[1].address);
  CHECK(calls[2].address == result.results[11].address);
}

TEST_CASE("with a background thread events are noticed when it runs") {
  const std::string list =
      "host_alloc a 1000\nwork 1\nhost_record a 1\nhost_free a\ncomplete 1\nhost_alloc b 1000\n"
      "host_background\nhost_alloc c 1000\n";
  const std::string settings = "pinned_use_background_threads:True";
  const ListResult newest = run_list(list, "2.15", settings);
  CHECK(newest.results[5].address != newest.results[0].address);
  CHECK(newest.results[7].address == newest.results[0].address);
  // Up to 2.9 a request asks the waiting blocks of its own size.
  const ListResult older = run_list(list, "2.9", settings);
  CHECK(older.results[5].address == older.results[0].address);
}

TEST_CASE("host addresses are the lowest that fit") {
  HostAddresses addresses;
  const auto a = addresses.take(5000);
  const auto b = addresses.take(1);
  const auto c = addresses.take(4096);
  REQUIRE((a && b && c));
  CHECK(*b == *a + 8192);
  CHECK(addresses.give_back(*b) == 1);
  CHECK(addresses.give_back(*a) == 5000);
  CHECK_FALSE(addresses.give_back(*a).has_value());
  CHECK(addresses.take(12288) == *a);
  CHECK_FALSE(addresses.take(HostAddresses::kHostWindowBytes).has_value());
}

TEST_CASE("host commands are told apart from those about devices") {
  CHECK(problem_of("alloc a 1\nhost_free a\n") == "l:2: 'a' is device memory");
  CHECK(problem_of("host_alloc a 1\nrecord_stream a 1\n") == "l:2: 'a' is host memory");
  CHECK(problem_of("host_free a\n") == "l:1: 'a' is not allocated");
  CHECK(problem_of("host_alloc a\n") == "l:1: host_alloc wants ID SIZE [STREAM]");
  CHECK(problem_of("host_empty_cache x\n") == "l:1: host_empty_cache takes no arguments");
  const std::string text =
      "host_alloc a 1000 2\nhost_record a 3\nhost_free a\nhost_begin_pool 1 2\nhost_end_pool 1\n"
      "host_release_pool 1\nhost_background\nhost_reset_peak_stats\n";
  const auto list = parse_commands(text, "l");
  REQUIRE(list.ok());
  CHECK(format_commands(list.value()) == text);
}

TEST_CASE("host addresses are a window of 16 TiB") {
  HostAddresses addresses;
  CHECK_FALSE(addresses.take((1ull << 44) + 1).has_value());
  CHECK(addresses.take(1ull << 44).has_value());
  CHECK_FALSE(addresses.take(1).has_value());
}

TEST_CASE("a pinned block that was given back is nobody's, whoever has its place in the books") {
  IdleHost host;
  HostAllocator& allocator = host.allocator;
  const uint64_t gone = allocator.allocate(4096).address;
  REQUIRE(allocator.allocate(4096).address > gone);
  REQUIRE(allocator.free(gone));
  allocator.empty_cache();
  const uint64_t other = allocator.allocate(1 << 20).address;  // does not fit where it was
  REQUIRE(other != gone);
  CHECK_FALSE(allocator.free(gone));
  CHECK(allocator.free(other));
}

TEST_CASE("no host window holds more bytes than there are") {
  SimulatedHostMemory memory;
  CHECK_FALSE(memory.allocate(UINT64_MAX, false));
  CHECK_FALSE(memory.allocate(UINT64_MAX - 4096, true));
  CHECK(memory.take_calls().empty());
}

TEST_CASE("a pinned request of nothing has no address and no size") {
  const ListResult result = run_list("host_alloc a 0\n", "2.15");
  CHECK(result.results[0].outcome == "null");
  CHECK(result.results[0].address.value_or(0) == 0);
  CHECK(result.results[0].block_size.value_or(0) == 0);
}

TEST_CASE("a host pool with a user outlives the flush") {
  for (const char* version : {"2.12", "2.14", "2.15"}) {
    const ListResult result = run_list(
        "host_begin_pool 1\nhost_end_pool 1\nhost_begin_pool 1\nhost_end_pool 1\n"
        "host_release_pool 1\nhost_empty_cache\nhost_release_pool 1\n",
        version);
    for (const CommandResult& each : result.results) CHECK(each.outcome == "ok");
  }
}

TEST_CASE("under the scope of a host pool that is gone, requests go to the default pool") {
  const std::string list =
      "host_begin_pool 1\nhost_release_pool 1\nhost_empty_cache\nhost_alloc a 1000\n"
      "host_free a\nhost_end_pool 1\nhost_alloc b 1000\n";
  const ListResult result = run_list(list, "2.15");
  CHECK(result.results[6].address == result.results[3].address);
  CHECK(result.results[6].host_calls.empty());
}

TEST_CASE("in 2.8 to 2.12 the end of its events does not lower active_bytes") {
  const std::string list =
      "host_alloc a 4096\nwork 1\nhost_record a 1\nhost_free a\ncomplete 1\nhost_alloc b 64\n";
  for (const VersionProfile& profile : version_profiles()) {
    if (profile.host_stats == HostStatsForm::kNone) continue;
    const auto stats = run_list(list, std::string(profile.name)).host;
    REQUIRE(stats);
    const bool by_size = profile.minor > 12;
    CHECK(stats->active_bytes.current == (by_size ? 64 : 4096 + 1 + 64));
  }
}

TEST_CASE("a pinned request of exactly the threshold is rounded") {
  for (const char* option :
       {"pinned_max_round_threshold_mb:100", "pinned_max_cached_size_mb:100"}) {
    for (const char* version : {"2.13", "2.15"}) {
      const std::string list = "host_alloc a 100MiB\nhost_alloc b 104857601\n";
      CHECK(block_sizes(run_list(list, version, option)) ==
            std::vector<uint64_t>{128 * kMiB, 104857601});
    }
  }
}
