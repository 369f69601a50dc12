// A state put into a fresh allocator is the state, and lives on as the original does.
#include <map>
#include <random>

#include "model/caching_allocator.h"
#include "model/simulated_segments.h"
#include "tests/support/catch.h"
#include "tests/support/invariants.h"

using namespace fragscope;
using namespace fragscope::model;

namespace {

// An allocator over a device of its own, with ascending addresses.
struct Machine {
  explicit Machine(const std::string& conf, std::string_view version)
      : profile(version_profile(version)),
        memory(0, capacity),
        segments(memory, capacity, 1ull << 36),
        allocator(parse_config(conf, profile).value(), profile, segments) {}

  VersionProfile profile;
  LocalCapacity capacity{1ull << 36};
  DeviceMemory memory;
  SimulatedSegments segments;
  CachingAllocator allocator;
};

struct Life {
  std::map<uint64_t, uint64_t> live;  // address -> size
  std::mt19937_64 random{7};

  void step(CachingAllocator& allocator, std::vector<uint64_t>& answers) {
    if (live.size() > 4 && random() % 2 == 0) {
      auto victim = live.begin();
      std::advance(victim, static_cast<ptrdiff_t>(random() % live.size()));
      allocator.free(victim->first);
      live.erase(victim);
      return;
    }
    const uint64_t size =
        random() % 3 == 0 ? 1 + random() % 4000 : 1 + random() % (56 << 20);  // some are oversize
    const MallocResult made = allocator.malloc(size, random() % 4 == 0 ? 5 : 0);
    answers.push_back(made.address);
    if (made.ok()) live[made.address] = size;
  }
};

// Fails for every call: what follows must be served from the state alone.
class NoMemory : public SegmentProvider {
 public:
  std::optional<uint64_t> device_malloc(uint64_t) override { return std::nullopt; }
  void device_free(uint64_t, uint64_t) override {}
  DeviceMemoryInfo memory_info() override { return {0, 1ull << 36}; }
  std::optional<uint64_t> reserve(uint64_t) override { return std::nullopt; }
  bool map(uint64_t, uint64_t) override { return false; }
  void unmap(uint64_t, uint64_t) override {}
  void release(uint64_t, uint64_t) override {}
};

bool same(const SegmentSnapshot& a, const SegmentSnapshot& b) {
  if (a.address != b.address || a.total_size != b.total_size || a.stream != b.stream ||
      a.kind != b.kind || !(a.pool == b.pool) || a.is_expandable != b.is_expandable ||
      a.allocated_size != b.allocated_size || a.active_size != b.active_size ||
      a.requested_size != b.requested_size || a.blocks.size() != b.blocks.size()) {
    return false;
  }
  for (size_t i = 0; i < a.blocks.size(); ++i) {
    const BlockSnapshot& x = a.blocks[i];
    const BlockSnapshot& y = b.blocks[i];
    if (x.address != y.address || x.size != y.size || x.state != y.state) return false;
    if (x.state != BlockState::kInactive && x.requested_size != y.requested_size) return false;
  }
  return true;
}

void check_same(const std::vector<SegmentSnapshot>& a, const std::vector<SegmentSnapshot>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    INFO("segment " << i << " at " << a[i].address);
    CHECK(same(a[i], b[i]));
  }
}

void check_levels(const CachingAllocator& a, const CachingAllocator& b) {
  const auto current = [](const DeviceStats& stats, const VersionProfile& profile) {
    std::map<std::string, int64_t> values;
    visit_stats(stats, profile, [&](const std::string& key, int64_t value) {
      if (key.size() > 8 && key.substr(key.size() - 8) == ".current") values[key] = value;
    });
    return values;
  };
  CHECK(current(a.stats(), a.profile()) == current(b.stats(), b.profile()));
}

}  // namespace

TEST_CASE("a restored state is the state, in levels, sets and future places") {
  const std::string conf = GENERATE("", "max_split_size_mb:32", "expandable_segments:True");
  const std::string version = GENERATE("2.1", "2.9", "2.15");
  Machine original(conf, version);
  Life life;
  std::vector<uint64_t> answers;
  for (int i = 0; i < 400; ++i) life.step(original.allocator, answers);
  const auto state = original.allocator.segments();

  NoMemory nothing;
  CachingAllocator copy(original.allocator.config(), original.profile, nothing);
  REQUIRE(copy.restore(state));
  CHECK(check_invariants(copy).empty());
  check_same(copy.segments(), state);
  check_levels(copy, original.allocator);

  // From here on both get the same requests; the copy has only what the state has.
  Machine twin(conf, version);
  Life other;
  std::vector<uint64_t> replayed;
  for (int i = 0; i < 400; ++i) other.step(twin.allocator, replayed);
  const size_t before = replayed.size();
  Life onward = other;
  std::vector<uint64_t> from_twin, from_copy;
  size_t compared = 0;
  for (int i = 0; i < 300; ++i) {
    Life fork = onward;
    onward.step(twin.allocator, from_twin);
    fork.step(copy, from_copy);
    if (from_twin.size() == from_copy.size() && from_copy.size() > 0 &&
        from_copy.back() != from_twin.back()) {
      CHECK(from_copy.back() == 0);  // the twin called for memory
      break;
    }
    ++compared;
  }
  CHECK(before == answers.size());
  CHECK(compared > 0);
  CHECK(check_invariants(copy).empty());
}

TEST_CASE("a state whose blocks do not fill their segment is refused whole") {
  NoMemory nothing;
  const VersionProfile& profile = version_profile("2.15");
  const auto with = [&](std::vector<BlockSnapshot> blocks) {
    SegmentSnapshot segment;
    segment.address = 4096;
    segment.total_size = 2048;
    segment.blocks = std::move(blocks);
    CachingAllocator allocator({}, profile, nothing);
    const bool done = allocator.restore(std::vector<SegmentSnapshot>{segment});
    CHECK(allocator.segments().size() == (done ? 1 : 0));
    CHECK(allocator.stats().reserved_bytes.all.current == (done ? 2048 : 0));
    return done;
  };
  CHECK(with({{4096, 2048, 0, BlockState::kInactive}}));
  CHECK_FALSE(with({}));
  CHECK_FALSE(with({{4096, 1024, 0, BlockState::kInactive}}));
  CHECK_FALSE(
      with({{4096, 1024, 0, BlockState::kAllocated}, {5632, 512, 0, BlockState::kAllocated}}));
  CHECK_FALSE(with({{4608, 1536, 0, BlockState::kAllocated}}));
  CHECK_FALSE(with({{4096, 0, 0, BlockState::kAllocated}, {4096, 2048, 0, BlockState::kInactive}}));
}

TEST_CASE("blocks of a private pool are restored into it, with one user") {
  NoMemory nothing;
  CachingAllocator allocator({}, version_profile("2.15"), nothing);
  SegmentSnapshot segment;
  segment.address = 1 << 20;
  segment.total_size = 2 << 20;
  segment.kind = PoolKind::kSmall;
  segment.pool = {0, 4};
  segment.blocks = {{1 << 20, 512, 100, BlockState::kAllocated},
                    {(1 << 20) + 512, (2 << 20) - 512, 0, BlockState::kInactive}};
  REQUIRE(allocator.restore(std::vector<SegmentSnapshot>{segment}));
  CHECK(allocator.segments()[0].pool == PoolId{0, 4});
  CHECK_FALSE(allocator.malloc(512).ok());  // the default pools have nothing
  REQUIRE(allocator.begin_pool({0, 4}));
  CHECK(allocator.malloc(512).address == (1 << 20) + 512);
  CHECK(allocator.end_pool({0, 4}));
  CHECK(allocator.release_pool({0, 4}));
  CHECK(allocator.release_pool({0, 4}));
  CHECK_FALSE(allocator.release_pool({0, 4}));
  // It is forgotten with its last segment.
  CHECK(allocator.free((1 << 20) + 512) == FreeOutcome::kFreed);
  allocator.empty_cache();
  CHECK_FALSE(allocator.checkpoint({0, 4}));
  CHECK(allocator.last_error() == "Not expected to checkpoint freeable graph");
  CHECK(allocator.free(1 << 20) == FreeOutcome::kFreed);
  allocator.empty_cache();
  CHECK_FALSE(allocator.checkpoint({0, 4}));
  CHECK(allocator.last_error() == "Could not find the private pool");
}

TEST_CASE("mapped parts of one expandable segment grow where they were") {
  Machine machine("expandable_segments:True", "2.15");
  const uint64_t mi = 1 << 20;
  const uint64_t base = machine.segments.reserve(1ull << 37).value_or(0);
  REQUIRE(base != 0);
  NoMemory nothing;
  CachingAllocator allocator(parse_config("expandable_segments:True", machine.profile).value(),
                             machine.profile, nothing);
  const auto part = [&](uint64_t offset, uint64_t bytes, BlockState state) {
    SegmentSnapshot segment;
    segment.address = base + offset;
    segment.total_size = bytes;
    segment.kind = PoolKind::kLarge;
    segment.is_expandable = true;
    segment.blocks = {{base + offset, bytes, bytes, state}};
    return segment;
  };
  REQUIRE(allocator.restore(std::vector<SegmentSnapshot>{
      part(0, 40 * mi, BlockState::kAllocated), part(60 * mi, 20 * mi, BlockState::kInactive)}));
  CHECK(check_invariants(allocator).empty());
  CHECK(allocator.stats().segment.all.current == 0);
  CHECK(allocator.stats().reserved_bytes.all.current == static_cast<int64_t>(60 * mi));
  CHECK(allocator.malloc(10 * mi).address == base + 60 * mi);
  CHECK_FALSE(allocator.malloc(30 * mi).ok());  // would have to map
}

TEST_CASE("a range that the driver refuses is out of memory, in its words") {
  NoMemory nothing;
  const VersionProfile& profile = version_profile("2.15");
  CachingAllocator allocator(parse_config("expandable_segments:True", profile).value(), profile,
                             nothing);
  CHECK_FALSE(allocator.malloc(30ull << 20).ok());
  CHECK(allocator.last_error() == "CUDA driver error: out of memory");
}

TEST_CASE("parts of a range that are restored one by one stay parts of one range") {
  class MapsAnywhere final : public NoMemory {
    bool map(uint64_t, uint64_t) override { return true; }
  } provider;
  const uint64_t base = 1ull << 40;
  const uint64_t mi = 1ull << 20;
  const VersionProfile& profile = version_profile("2.15");
  CachingAllocator allocator(parse_config("expandable_segments:True", profile).value(), profile,
                             provider);
  const auto part = [&](uint64_t offset, BlockState state) {
    SegmentSnapshot segment;
    segment.address = base + offset;
    segment.total_size = 20 * mi;
    segment.kind = PoolKind::kLarge;
    segment.is_expandable = true;
    segment.blocks = {{segment.address, 20 * mi, 20 * mi, state}};
    return segment;
  };
  REQUIRE(allocator.restore(std::vector<SegmentSnapshot>{
      part(0, BlockState::kAllocated), part(40 * mi, BlockState::kAllocated),
      part(80 * mi, BlockState::kInactive), part(120 * mi, BlockState::kAllocated)}));
  CHECK(check_invariants(allocator).empty());
  CHECK(allocator.malloc(30 * mi).address == base + 60 * mi);  // 20 are mapped before, 20 there
  CHECK(allocator.malloc(50 * mi).address == base + 140 * mi);
  CHECK(allocator.malloc(20 * mi).address == base + 20 * mi);
  CHECK(check_invariants(allocator).empty());
}

// TieRule: up to 2.11 the lower address, from 2.12 on the one that was made first.
TEST_CASE("of equal free blocks in a restored state each release takes its own") {
  const auto [version, first_made] = GENERATE(table<std::string, bool>(
      {{"2.1", false}, {"2.11", false}, {"2.12", true}, {"2.13", true}, {"2.15", true}}));
  const bool expandable = GENERATE(false, true);
  INFO(version << ", expandable " << expandable);
  const uint64_t bytes = 40ull << 20;
  const auto segment = [&](uint64_t address) {
    SegmentSnapshot made;
    made.address = address;
    made.total_size = bytes;
    made.kind = PoolKind::kLarge;
    made.is_expandable = expandable;
    made.blocks = {{address, bytes, 0, BlockState::kInactive}};
    return made;
  };
  NoMemory nothing;
  const VersionProfile& profile = version_profile(version);
  CachingAllocator allocator(
      parse_config(expandable ? "expandable_segments:True" : "", profile).value(), profile,
      nothing);
  const uint64_t low = 1ull << 40;
  const uint64_t high = 1ull << 41;
  REQUIRE(allocator.restore(std::vector<SegmentSnapshot>{segment(high), segment(low)}));
  CHECK(allocator.malloc(bytes).address == (first_made ? high : low));
  CHECK(allocator.malloc(bytes).address == (first_made ? low : high));
}

namespace {

SegmentSnapshot mapped(uint64_t address, uint64_t size, BlockState state, PoolKind kind) {
  SegmentSnapshot segment;
  segment.address = address;
  segment.total_size = size;
  segment.kind = kind;
  segment.is_expandable = true;
  segment.blocks = {{address, size, size, state}};
  if (state != BlockState::kInactive) {
    segment.allocated_size = segment.active_size = segment.requested_size = size;
  }
  return segment;
}

}  // namespace

// In any order: what lies between two of them, or exactly fills it, is of their range.
TEST_CASE("mapped parts of one range are put back in any order") {
  constexpr uint64_t kAt = uint64_t{1} << 44;
  constexpr uint64_t kPage = 20 * kMiB;
  std::vector<SegmentSnapshot> parts;
  for (const uint64_t page : {0, 2, 3, 5}) {
    parts.push_back(mapped(kAt + page * kPage, kPage,
                           page == 2 ? BlockState::kInactive : BlockState::kAllocated,
                           PoolKind::kLarge));
  }
  for (const std::vector<size_t>& order : std::vector<std::vector<size_t>>{
           {0, 1, 2, 3}, {0, 3, 2, 1}, {0, 3, 1, 2}, {0, 2, 3, 1}, {0, 2, 1, 3}}) {
    Machine machine("expandable_segments:True", "2.15");
    std::vector<SegmentSnapshot> given;
    for (const size_t at : order) given.push_back(parts[at]);
    REQUIRE(machine.allocator.restore(given));
    CHECK(check_invariants(machine.allocator).empty());
    for (const size_t at : {0, 2, 3}) REQUIRE(machine.allocator.find(parts[at].address) != kNone);
    // One range: the free page and the hole behind it, or before the last, are its neighbours.
    const BlockTable& blocks = machine.allocator.blocks();
    const BlockIndex last = machine.allocator.find(parts[3].address);
    const BlockIndex hole = blocks[last].previous;
    REQUIRE(hole != kNone);
    CHECK_FALSE(blocks[hole].mapped);
    CHECK(blocks[hole].size == kPage);
    CHECK(blocks[hole].previous == machine.allocator.find(parts[2].address));
    CHECK(blocks[blocks[last].next].previous == last);
    BlockIndex at = machine.allocator.find(parts[0].address);
    size_t count = 0;
    for (uint64_t end = kAt; at != kNone; at = blocks[at].next, ++count) {
      CHECK(blocks[at].address == end);
      end += blocks[at].size;
    }
    CHECK(count == 7);  // four parts, two holes, the rest of the range
  }
}

TEST_CASE("a part that does not fit behind the others has a range of its own") {
  constexpr uint64_t kAt = uint64_t{1} << 44;
  Machine machine("expandable_segments:True", "2.15");
  const uint64_t range = (uint64_t{1} << 36) / 8 * 9;
  const std::vector<SegmentSnapshot> parts = {
      mapped(kAt, 20 * kMiB, BlockState::kAllocated, PoolKind::kLarge),
      mapped(kAt + range - 20 * kMiB, 40 * kMiB, BlockState::kAllocated, PoolKind::kLarge)};
  REQUIRE(machine.allocator.restore(parts));
  const BlockTable& blocks = machine.allocator.blocks();
  CHECK(blocks[machine.allocator.find(parts[1].address)].previous == kNone);
}

TEST_CASE("a range that was put back grows by the pages of its pool, beside new ranges") {
  constexpr uint64_t kAt = uint64_t{1} << 44;
  for (const PoolKind kind : {PoolKind::kSmall, PoolKind::kLarge}) {
    const bool small = kind == PoolKind::kSmall;
    const uint64_t page = (small ? 2 : 20) * kMiB;
    Machine machine("expandable_segments:True", "2.15");
    machine.segments.reserve(kMiB);
    REQUIRE(machine.allocator.restore(
        std::vector<SegmentSnapshot>{mapped(kAt, page, BlockState::kAllocated, kind)}));
    const uint64_t before = machine.allocator.reserved_bytes();
    // Another stream's range takes a slot of its own.
    const MallocResult other = machine.allocator.malloc(small ? 512 : 2 * kMiB, 9);
    REQUIRE(other.ok());
    CHECK(machine.allocator.reserved_bytes() == before + page);
    CHECK(check_invariants(machine.allocator).empty());
    const BlockTable& blocks = machine.allocator.blocks();
    CHECK(blocks.range(machine.allocator.find(kAt)) != blocks.range(other.block));
  }
}

TEST_CASE(
    "what was put back is found, whenever one first asked, and is as large as the rules say") {
  Machine machine("max_split_size_mb:32", "2.15");
  CHECK(machine.allocator.find(512) == kNone);  // from now on there is a map
  SegmentSnapshot segment =
      mapped(uint64_t{1} << 44, 32 * kMiB, BlockState::kAllocated, PoolKind::kLarge);
  segment.is_expandable = false;
  REQUIRE(machine.allocator.restore(std::vector<SegmentSnapshot>{segment}));
  CHECK(machine.allocator.find(segment.address) != kNone);
  CHECK(machine.allocator.stats().oversize_allocations.current == 1);
  CHECK(machine.allocator.stats().oversize_segments.current == 1);
}

// The range is filled: its one block is not split, is no candidate, and counts.
TEST_CASE("garbage collection ends where all that is old is one expandable block") {
  for (const char* version : {"2.9", "2.15"}) {
    Machine machine("garbage_collection_threshold:0.1", version);
    const uint64_t all = (uint64_t{1} << 36) / 8 * 9 + 20 * kMiB;
    REQUIRE(machine.allocator.restore(std::vector<SegmentSnapshot>{
        mapped(uint64_t{1} << 44, all, BlockState::kInactive, PoolKind::kLarge)}));
    REQUIRE(machine.allocator.set_memory_fraction(0.5));
    CHECK(machine.allocator.malloc(all + kMiB).outcome == MallocOutcome::kOutOfMemory);
  }
}

// Blocks of before were given back at call 0.
TEST_CASE("garbage collection counts the age of what was put back from the first request on") {
  Machine machine("garbage_collection_threshold:0.5", "2.15");
  SegmentSnapshot old =
      mapped(uint64_t{1} << 44, 30 * kMiB, BlockState::kInactive, PoolKind::kLarge);
  old.is_expandable = false;
  REQUIRE(machine.allocator.restore(std::vector<SegmentSnapshot>{old}));
  CachingAllocator& allocator = machine.allocator;
  REQUIRE(allocator.set_memory_fraction(0.0044));               // 288 MiB, of which half stay
  const uint64_t young = allocator.malloc(50 * kMiB).address;   // call 1
  const uint64_t middle = allocator.malloc(40 * kMiB).address;  // call 2
  allocator.free(middle);
  allocator.malloc(3 * kMiB, 7);   // calls 3 and
  allocator.malloc(20 * kMiB, 7);  // 4
  allocator.free(young);
  const uint64_t before = allocator.reserved_bytes();
  // Call 5: ages 5, 3 and 1. The one in the middle is of average age, too.
  allocator.malloc(60 * kMiB);
  CHECK(before - allocator.reserved_bytes() == 70 * kMiB - 60 * kMiB);
}
