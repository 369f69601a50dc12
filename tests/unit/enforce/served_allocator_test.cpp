#include "enforce/served_allocator.h"

#include <optional>
#include <random>
#include <thread>

#include "base/bytes.h"
#include "enforce/settings.h"
#include "tests/support/catch.h"
#include "tests/support/fake_device.h"

namespace fragscope {
namespace {

using enforce::Freed;
using enforce::Ownership;
using enforce::Served;
using enforce::ServedAllocator;
using test::FakeDevice;

const model::VersionProfile& newest() { return model::version_profiles().back(); }

struct Fixture {
  explicit Fixture(uint64_t capacity = 4 * kGiB, const char* settings = "")
      : device(capacity),
        allocator(enforce::read_settings(settings, newest()).value(), newest(), device, nullptr) {}

  FakeDevice device;
  ServedAllocator allocator;
};

// The same device for the model alone.
class PlainSegments final : public model::SegmentProvider {
 public:
  explicit PlainSegments(uint64_t capacity) : device_(capacity) {}
  std::optional<uint64_t> device_malloc(uint64_t bytes) override {
    uint64_t address = 0;
    if (device_.malloc(bytes, address) != 0) return std::nullopt;
    return address;
  }
  void device_free(uint64_t address, uint64_t) override { device_.free(address); }
  model::DeviceMemoryInfo memory_info() override {
    model::DeviceMemoryInfo info;
    device_.memory_info(info.free, info.total);
    return info;
  }
  const std::vector<FakeDevice::Call>& calls() const { return device_.calls; }

 private:
  FakeDevice device_;
};

TEST_CASE("requests that no device can serve are refused, whatever they would round to") {
  const char* const settings = GENERATE("", "roundup_power2_divisions:4");
  const uint64_t size =
      GENERATE(uint64_t{1} << 60, (uint64_t{1} << 63) + 1, ~uint64_t{0} - 2 * kMiB,
               ~uint64_t{0} - 511, ~uint64_t{0} - 510, ~uint64_t{0});
  Fixture served(kGiB, settings);
  const uint64_t cached = served.allocator.allocate(3 * kMiB, 0).address;
  served.allocator.release(cached);
  const size_t calls = served.device.calls.size();
  const Served got = served.allocator.allocate(size, 0);
  CHECK(got.result == enforce::kOutOfMemory);
  CHECK(got.address == 0);
  CHECK(served.device.calls.size() == calls);  // nor is the cache flushed for them
  CHECK(served.allocator.stats().allocated == 0);
}

TEST_CASE("idle memory goes back without waiting for the device") {
  Fixture f(kGiB);
  const uint64_t held = f.allocator.allocate(12 * kMiB, 0).address;
  const uint64_t idle = f.allocator.allocate(30 * kMiB, 0).address;
  CHECK_FALSE(f.allocator.give_back_idle());
  f.allocator.release(idle);
  f.device.may_wait = false;  // freed under a capture: not idle yet
  enforce::CudaResult result = 0;
  CHECK(f.allocator.release_after_device(held, result) == Freed::kPending);
  f.device.may_wait = true;
  CHECK(f.allocator.give_back_idle());
  CHECK(f.device.waits == 0);
  CHECK(f.allocator.stats().reserved == 12 * kMiB);
  CHECK_FALSE(f.allocator.give_back_idle());
}

TEST_CASE("the largest request that is rounded fails as CUDA says") {
  Fixture served(kGiB, GENERATE("", "roundup_power2_divisions:4"));
  CHECK(served.allocator.allocate(enforce::kMaxRequest, 0).result == enforce::kOutOfMemory);
  CHECK(served.device.calls.back().bytes == uint64_t{1} << 60);
}

TEST_CASE("addresses and segment calls are the model's") {
  const char* const settings = GENERATE("", "max_split_size_mb:64", "roundup_power2_divisions:4");
  Fixture served(1 * kGiB, settings);
  PlainSegments segments(1 * kGiB);
  model::CachingAllocator plain(enforce::read_settings(settings, newest()).value(), newest(),
                                segments);
  std::mt19937_64 random(7);
  std::vector<uint64_t> live;
  int refused = 0;
  for (int step = 0; step < 4000; ++step) {
    if (live.empty() || random() % 5 < 3) {
      const uint64_t bytes = 1 + random() % (random() % 4 == 0 ? 96 * kMiB : 3 * kMiB);
      const uint64_t stream = random() % 3;
      const Served got = served.allocator.allocate(bytes, stream);
      REQUIRE(got.address == plain.malloc(bytes, stream).address);
      REQUIRE((got.result == 0) == (got.address != 0));
      refused += got.result != 0;
      if (got.result == 0) live.push_back(got.address);
    } else {
      std::swap(live[random() % live.size()], live.back());
      served.allocator.release(live.back());
      plain.free(live.back());
      live.pop_back();
    }
  }
  CHECK(refused > 0);
  CHECK(served.device.calls == segments.calls());
}

TEST_CASE("a block is reused on its own stream without waiting") {
  Fixture f;
  const Served first = f.allocator.allocate(1000, 5);
  CHECK(f.allocator.release(first.address) == Freed::kFreed);
  CHECK(f.allocator.allocate(1000, 5).address == first.address);
  CHECK(f.allocator.allocate(1000, 6).address != first.address);
  CHECK(f.device.waits == 0);
}

TEST_CASE("a block that another stream uses comes back when that stream is done") {
  Fixture f;
  const Served first = f.allocator.allocate(3 * kMiB, 0);
  CHECK(f.allocator.record_stream(first.address, 9));
  f.device.work(9, first.address, first.size);
  CHECK(f.allocator.release(first.address) == Freed::kPending);
  CHECK(f.allocator.allocate(3 * kMiB, 0).address != first.address);
  f.device.finish(9);
  CHECK(f.allocator.allocate(3 * kMiB, 0).address == first.address);
  CHECK(f.device.live_events() == 0);
  CHECK(f.device.waits == 0);
  CHECK_FALSE(f.allocator.record_stream(first.address + 512, 9));
}

TEST_CASE("an event that cannot be recorded holds the block until the device has waited") {
  Fixture f(64 * kMiB);
  const Served first = f.allocator.allocate(30 * kMiB, 0);
  f.device.refuses_events = true;
  f.allocator.record_stream(first.address, 9);
  CHECK(f.allocator.release(first.address) == Freed::kPending);
  f.device.finish(9);
  const Served second = f.allocator.allocate(30 * kMiB, 0);
  CHECK(second.address != first.address);
  CHECK(f.device.waits == 0);
  // No room for a third: the flush waits and gives the first segment back.
  CHECK(f.allocator.allocate(30 * kMiB, 0).result == 0);
  CHECK(f.device.waits == 1);
}

TEST_CASE("a free as cudaFree waits for the device before the block is anybody's") {
  Fixture f;
  const Served first = f.allocator.allocate(3 * kMiB, 0);
  f.device.work(4, first.address, first.size);
  int result = -1;
  CHECK(f.allocator.release_after_device(first.address, result) == Freed::kFreed);
  CHECK(result == 0);
  CHECK(f.device.waits == 1);
  CHECK(f.allocator.allocate(3 * kMiB, 0).address == first.address);
  CHECK_FALSE(f.device.in_use_elsewhere(0, first.address, first.size));
}

TEST_CASE("a free whose wait fails answers CUDA's error and frees nothing") {
  Fixture f;
  const Served first = f.allocator.allocate(3 * kMiB, 0);
  f.device.wait_result = 700;
  int result = 0;
  CHECK(f.allocator.release_after_device(first.address, result) == Freed::kFailed);
  CHECK(result == 700);
  CHECK(f.allocator.ownership(first.address) == Ownership::kBlock);
  CHECK(f.allocator.allocate(3 * kMiB, 0).address != first.address);
}

TEST_CASE("what a thread frees that may not wait comes back with the next wait") {
  Fixture f(64 * kMiB);
  const Served first = f.allocator.allocate(25 * kMiB, 0);
  const Served second = f.allocator.allocate(25 * kMiB, 0);
  int result = -1;
  f.device.may_wait = false;
  CHECK(f.allocator.release_after_device(first.address, result) == Freed::kPending);
  CHECK(result == 0);
  CHECK(f.device.waits == 0);
  CHECK(f.allocator.release_after_device(first.address, result) == Freed::kInside);
  CHECK(f.allocator.allocate(25 * kMiB, 0).result == enforce::kOutOfMemory);
  f.device.may_wait = true;
  SECTION("another free") {
    f.device.wait_result = 700;
    CHECK(f.allocator.release_after_device(second.address, result) == Freed::kFailed);
    f.device.wait_result = 0;
    CHECK(f.allocator.release_after_device(second.address, result) == Freed::kFreed);
    CHECK(f.device.waits == 2);
    CHECK(f.allocator.stats().allocated == 0);
  }
  SECTION("a request that would fail") {
    CHECK(f.allocator.allocate(25 * kMiB, 0).address == first.address);
    CHECK(f.device.waits == 1);
  }
  SECTION("an empty cache") {
    f.allocator.empty_cache();
    CHECK(f.device.segments.size() == 1);
  }
}

TEST_CASE("a free as cudaFreeAsync waits for the named stream alone") {
  Fixture f;
  const Served first = f.allocator.allocate(3 * kMiB, 0);
  f.device.work(4, first.address, first.size);
  CHECK(f.allocator.release_after_stream(first.address, 4) == Freed::kPending);
  CHECK(f.allocator.release(first.address) == Freed::kInside);  // not twice
  CHECK(f.allocator.allocate(3 * kMiB, 0).address != first.address);
  f.device.finish(4);
  CHECK(f.allocator.allocate(3 * kMiB, 0).address == first.address);
}

TEST_CASE("pointers that are no block's start are told apart") {
  Fixture f;
  const Served block = f.allocator.allocate(3 * kMiB, 0);
  CHECK(f.allocator.release(0x1234) == Freed::kForeign);
  CHECK(f.allocator.release(block.address + 512) == Freed::kInside);
  CHECK(f.allocator.ownership(block.address) == Ownership::kBlock);
  CHECK(f.allocator.release(block.address) == Freed::kFreed);
  CHECK(f.allocator.release(block.address) == Freed::kInside);
  const auto segment = f.allocator.base_of(block.address + 5 * kMiB);
  REQUIRE(segment.has_value());
  CHECK(segment->second == 20 * kMiB);
  CHECK_FALSE(f.allocator.base_of(segment->first + segment->second).has_value());
}

TEST_CASE("cached segments go back before a request fails") {
  Fixture f(64 * kMiB);
  const Served first = f.allocator.allocate(40 * kMiB, 0);
  f.allocator.release(first.address);
  CHECK(f.allocator.allocate(50 * kMiB, 1).result == 0);
  CHECK(f.device.forgotten == 1);  // CUDA's error of the first attempt
  CHECK(f.allocator.stats().retries == 1);
  CHECK(f.allocator.allocate(50 * kMiB, 1).result == enforce::kOutOfMemory);
  CHECK(f.device.forgotten == 1);  // this one is the program's
  CHECK(f.allocator.oom_text(3).find("CUDA out of memory. Tried to allocate 50.00 MiB") == 0);
}

TEST_CASE("new settings hold from the next request on") {
  Fixture f;
  CHECK(f.allocator.allocate(30 * kMiB, 0).size == 30 * kMiB);
  auto config = enforce::read_settings("max_split_size_mb:20,roundup_power2_divisions:2", newest(),
                                       f.allocator.config());
  f.allocator.set_config(config.value());
  CHECK(f.allocator.allocate(30 * kMiB, 0).size == 32 * kMiB);
  CHECK(f.allocator.config().max_split_size == 20 * kMiB);
}

TEST_CASE("requests of a pool's streams stay in the pool") {
  Fixture f;
  const Served outside = f.allocator.allocate(3 * kMiB, 1);
  f.allocator.release(outside.address);
  const model::PoolId pool{0, 1};
  REQUIRE(f.allocator.begin_pool(pool, [](uint64_t stream) { return stream == 1; }));
  const Served inside = f.allocator.allocate(3 * kMiB, 1);
  CHECK(inside.address != outside.address);
  CHECK(f.allocator.end_pool(pool));
  CHECK_FALSE(f.allocator.end_pool(pool));
  CHECK(f.allocator.allocate(3 * kMiB, 1).address == outside.address);
  f.allocator.release(inside.address);
  CHECK(f.allocator.allocate(3 * kMiB, 1).address != inside.address);
  CHECK(f.allocator.release_pool(pool));
}

TEST_CASE("an empty cache holds no segments") {
  Fixture f;
  f.allocator.release(f.allocator.allocate(1000, 0).address);
  f.allocator.release(f.allocator.allocate(100 * kMiB, 1).address);
  f.allocator.empty_cache();
  CHECK(f.device.segments.empty());
  CHECK(f.allocator.stats().reserved == 0);
  CHECK(f.allocator.stats().peak_allocated == 100 * kMiB);
}

// A plan of one place.
class OnePlace final : public enforce::Placement {
 public:
  std::optional<enforce::PlacedBlock> offer(uint64_t requested, uint64_t) override {
    if (taken || requested != 5000) return std::nullopt;
    taken = true;
    return enforce::PlacedBlock{kAddress, 5120};
  }
  void release(uint64_t address) override { taken = address != kAddress; }
  uint64_t reserved_bytes() const override { return 8192; }
  bool contains(uint64_t address) const override {
    return address >= kAddress && address < kAddress + 8192;
  }

  static constexpr uint64_t kAddress = 0x6000'0000'0000;
  bool taken = false;
};

TEST_CASE("a placement is asked first and the cache serves the rest") {
  Fixture f;
  auto owned = std::make_unique<OnePlace>();
  OnePlace& place = *owned;
  CHECK(f.allocator.set_placement(std::move(owned)));
  CHECK(f.allocator.allocate(5000, 0).address == OnePlace::kAddress);
  CHECK(f.allocator.stats().allocated == 5120);
  const Served cached = f.allocator.allocate(5000, 0);
  CHECK(cached.address != OnePlace::kAddress);
  CHECK(f.allocator.release(OnePlace::kAddress + 1) == Freed::kInside);
  CHECK_FALSE(f.allocator.set_placement(nullptr));  // a block of it is handed out
  f.allocator.record_stream(OnePlace::kAddress, 7);
  f.device.work(7, OnePlace::kAddress, 10);
  CHECK(f.allocator.release(OnePlace::kAddress) == Freed::kPending);
  CHECK(f.allocator.allocate(5000, 0).address != OnePlace::kAddress);
  CHECK(place.taken);
  f.device.finish(7);
  CHECK(f.allocator.allocate(5000, 0).address == OnePlace::kAddress);
  CHECK(f.allocator.release(OnePlace::kAddress) == Freed::kFreed);
  CHECK_FALSE(place.taken);
  CHECK(f.allocator.set_placement(nullptr));
}

TEST_CASE("settings that cannot be served are named") {
  const auto refused = [](const char* text) {
    return enforce::read_settings(text, newest()).error().text;
  };
  CHECK(refused("max_split_size_mb:potato").find("'max_split_size_mb:potato'") !=
        std::string::npos);
  CHECK(refused("expandable_segments:True").find("expandable_segments") != std::string::npos);
  CHECK(refused("backend:cudaMallocAsync").find("backend") != std::string::npos);
}

// --- the rule of reuse
// ----------------------------------------------------------------------------

// A device whose answers are wrong in one way each.
class HastyDevice : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  enforce::CudaResult synchronize() override {
    return never_waits ? enforce::kSuccess : FakeDevice::synchronize();
  }
  enforce::EventState query_event(enforce::Event event) override {
    return never_asks ? enforce::EventState::kDone : FakeDevice::query_event(event);
  }
  bool never_waits = false;
  bool never_asks = false;
};

// How many blocks were handed out while work of another stream on them was under way.
int reuses_too_early(HastyDevice& device, bool as_cuda_free) {
  ServedAllocator allocator(model::AllocatorConfig{}, newest(), device, nullptr);
  std::mt19937_64 random(11);
  std::vector<Served> live;
  int early = 0;
  for (int step = 0; step < 3000; ++step) {
    if (random() % 16 == 0) device.finish(random() % 4);
    if (live.empty() || random() % 2 == 0) {
      const uint64_t stream = as_cuda_free ? 0 : random() % 4;
      const Served got = allocator.allocate(1 + random() % (4 * kMiB), stream);
      if (got.result != 0) continue;
      early += device.in_use_elsewhere(as_cuda_free ? 99 : stream, got.address, got.size);
      live.push_back(got);
      const uint64_t user = random() % 4;
      if (!as_cuda_free) allocator.record_stream(got.address, user);
      device.work(user, got.address, got.size);
    } else {
      std::swap(live[random() % live.size()], live.back());
      int result = 0;
      if (as_cuda_free) {
        allocator.release_after_device(live.back().address, result);
      } else {
        allocator.release(live.back().address);
      }
      live.pop_back();
    }
  }
  return early;
}

TEST_CASE("no block is handed out while the device works on it; a broken rule is caught") {
  const bool as_cuda_free = GENERATE(true, false);
  HastyDevice right(1 * kGiB);
  CHECK(reuses_too_early(right, as_cuda_free) == 0);
  HastyDevice broken(1 * kGiB);
  broken.never_waits = as_cuda_free;
  broken.never_asks = !as_cuda_free;
  CHECK(reuses_too_early(broken, as_cuda_free) > 0);
}

// --- threads
// --------------------------------------------------------------------------------------

TEST_CASE("threads never get overlapping blocks and nothing is lost") {
  Fixture f;
  std::mutex mutex;
  std::map<uint64_t, uint64_t> live;  // start -> end
  int overlaps = 0;
  const auto worker = [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Served> mine;
    for (int step = 0; step < 2000; ++step) {
      if (mine.size() < 8) {
        const Served got = f.allocator.allocate(1 + random() % (2 * kMiB), random() % 4);
        const std::lock_guard lock(mutex);
        const auto next = live.lower_bound(got.address);
        overlaps += next != live.end() && next->first < got.address + got.size;
        overlaps += next != live.begin() && std::prev(next)->second > got.address;
        live[got.address] = got.address + got.size;
        mine.push_back(got);
      } else {
        std::swap(mine[random() % mine.size()], mine.back());
        {
          const std::lock_guard lock(mutex);
          live.erase(mine.back().address);
        }
        int result = 0;
        if (step % 3 == 0) {
          f.allocator.release_after_device(mine.back().address, result);
        } else {
          f.allocator.release(mine.back().address);
        }
        mine.pop_back();
      }
    }
    for (const Served& block : mine) {
      {
        const std::lock_guard lock(mutex);
        live.erase(block.address);
      }
      f.allocator.release(block.address);
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 8; ++seed) threads.emplace_back(worker, seed);
  for (std::thread& thread : threads) thread.join();
  CHECK(overlaps == 0);
  CHECK(f.allocator.stats().allocated == 0);
  f.allocator.empty_cache();
  CHECK(f.device.segments.empty());
}

}  // namespace
}  // namespace fragscope
