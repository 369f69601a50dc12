// src/enforce/plan_placement.h behind the served allocator: the arena comes and goes, and a plan
// never makes a request fail that would be served without it.
#include "enforce/plan_placement.h"

#include "base/bytes.h"
#include "enforce/served_allocator.h"
#include "tests/support/catch.h"
#include "tests/support/fake_device.h"

using namespace fragscope;
using namespace fragscope::enforce;
using test::FakeDevice;

namespace {

// Counts what is told.
class Told final : public BlockSink {
 public:
  void on_alloc(const BlockAlloc&) override {}
  void on_free_requested(uint64_t, uint64_t, uint64_t) override {}
  void on_free_completed(uint64_t, uint64_t, uint64_t) override {}
  void on_segment_alloc(uint64_t, uint64_t, uint64_t size) override { segments += size; }
  void on_segment_free(uint64_t, uint64_t, uint64_t size) override { segments -= size; }
  void on_oom(uint64_t, uint64_t, uint64_t) override { ++ooms; }

  uint64_t segments = 0;
  int ooms = 0;
};

struct Fixture {
  explicit Fixture(uint64_t capacity, uint64_t arena = 8 * kMiB)
      : device(capacity),
        allocator(model::AllocatorConfig{}, model::version_profiles().back(), device, &told) {
    Plan plan;
    plan.arena_bytes = arena;
    plan.requests = {{kMiB, 0, 0}, {2 * kMiB, kMiB, 0}};
    CHECK(allocator.set_placement(std::make_unique<PlanPlacement>(plan, device, &told)));
  }
  FakeDevice device;
  Told told;
  ServedAllocator allocator;
};

}  // namespace

TEST_CASE("the arena is one segment, taken with the first request that has a place") {
  Fixture f(kGiB);
  CHECK(f.device.segments.empty());
  const uint64_t first = f.allocator.allocate(kMiB, 0).address;
  CHECK(f.allocator.allocate(2 * kMiB, 0).address == first + kMiB);
  CHECK(f.device.segments.size() == 1);
  CHECK(f.allocator.stats().reserved == 8 * kMiB);
  CHECK(f.told.segments == 8 * kMiB);
  CHECK(f.allocator.release(first) == Freed::kFreed);
  CHECK(f.allocator.release(first + kMiB) == Freed::kFreed);
  f.allocator.empty_cache();
  CHECK(f.device.segments.empty());
  CHECK(f.told.segments == 0);
  CHECK(f.allocator.allocate(kMiB, 0).size == kMiB);  // and comes back
  CHECK(f.device.segments.size() == 1);
}

TEST_CASE("no memory for the arena: the cache serves, and nothing is told of a failure") {
  Fixture f(64 * kMiB, kGiB);
  CHECK(f.allocator.allocate(kMiB, 0).result == kSuccess);
  CHECK(f.allocator.stats().placed == 0);
  CHECK(f.told.ooms == 0);
  CHECK(f.device.forgotten == 1);  // CUDA's last error is not the program's
}

TEST_CASE("an idle arena makes room before a request fails, and that is no failure") {
  Fixture f(40 * kMiB);
  const uint64_t block = f.allocator.allocate(kMiB, 0).address;
  f.allocator.release(block);
  CHECK(f.allocator.allocate(36 * kMiB, 0).result == kSuccess);
  CHECK(f.told.ooms == 0);
  CHECK(f.told.segments == 36 * kMiB);
}

TEST_CASE("a failure is told once") {
  Fixture f(40 * kMiB);
  CHECK(f.allocator.allocate(kMiB, 0).result == kSuccess);
  CHECK(f.allocator.allocate(36 * kMiB, 0).result == kOutOfMemory);
  CHECK(f.told.ooms == 1);
}

TEST_CASE("PyTorch's statistics count what the plan placed, peaks and failures too") {
  Fixture f(40 * kMiB);
  const auto stat = [&](const std::string& name) {
    int64_t found = -1;
    f.allocator.visit_stats([&](const std::string& key, int64_t value) {
      if (key == name) found = value;
    });
    return found;
  };
  const uint64_t placed = f.allocator.allocate(kMiB - 100, 0).address;
  const uint64_t cached = f.allocator.allocate(12 * kMiB, 0).address;
  CHECK(f.allocator.stats().placed == 1);
  CHECK(stat("allocated_bytes.all.current") == int64_t{13} * kMiB);
  CHECK(stat("requested_bytes.all.current") == int64_t{13} * kMiB - 100);
  CHECK(stat("reserved_bytes.all.current") == int64_t{20} * kMiB);
  CHECK(stat("segment.all.current") == 2);
  CHECK(stat("num_device_alloc") == 2);
  CHECK(f.allocator.allocate(36 * kMiB, 0).result == kOutOfMemory);
  CHECK(stat("num_ooms") == 1);
  CHECK(f.allocator.oom_text(0).find("memory 13.00 MiB is allocated by PyTorch, and 7.00 MiB is "
                                     "reserved by PyTorch but unallocated") != std::string::npos);

  f.allocator.record_stream(placed, 5);
  f.device.work(5, placed, 1);
  f.allocator.release(placed);  // its other stream is not done
  CHECK(stat("allocated_bytes.all.current") == int64_t{12} * kMiB);
  CHECK(stat("active_bytes.all.current") == int64_t{13} * kMiB);
  f.allocator.release(cached);
  f.allocator.empty_cache();
  for (const char* const name : {"allocated_bytes", "active_bytes", "requested_bytes",
                                 "reserved_bytes", "segment", "allocation", "active"}) {
    CHECK(stat(std::string(name) + ".all.current") == 0);
    CHECK(stat(std::string(name) + ".large_pool.current") == 0);
  }
  CHECK(stat("allocated_bytes.all.peak") == int64_t{13} * kMiB);
  CHECK(stat("reserved_bytes.all.peak") == int64_t{20} * kMiB);
  CHECK(stat("allocated_bytes.all.allocated") == int64_t{13} * kMiB);
  f.allocator.reset_peak_stats();
  CHECK(stat("allocated_bytes.all.peak") == 0);
  CHECK(stat("reserved_bytes.all.peak") == 0);
}

TEST_CASE("an attempt before the idle arena was given back is no failure in the statistics") {
  Fixture f(40 * kMiB);
  f.allocator.release(f.allocator.allocate(kMiB, 0).address);
  CHECK(f.allocator.allocate(36 * kMiB, 0).result == kSuccess);
  CHECK(f.allocator.stats().ooms == 0);
  CHECK(f.allocator.stats().peak_reserved == 36 * kMiB);
}

TEST_CASE("a request that no device can serve has no place in a plan") {
  Fixture f(64 * kMiB);
  CHECK(f.allocator.allocate(~uint64_t{0} - 100, 0).result == kOutOfMemory);
  CHECK(f.device.calls.empty());
  CHECK(f.allocator.allocate(kMiB, 0).result == kSuccess);  // the plan's first, still
  CHECK(f.allocator.stats().placed == 1);
}

TEST_CASE("plan files that are none are refused by name") {
  CHECK(load_plan("/nowhere/plan.json").error().code == ErrorCode::kNotFound);
  CHECK(load_plan("/").error().code == ErrorCode::kForeign);
  CHECK(load_plan("/dev/null").error().text.find("/dev/null") == 0);
}
