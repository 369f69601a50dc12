#include "model/device_memory.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "base/bytes.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::model;

TEST_CASE("small requests share a page, large ones get whole pages") {
  LocalCapacity book(64 * kMiB);
  DeviceMemory memory(0, book);
  const uint64_t base = device_window(0);
  CHECK(memory.allocate(1) == base);
  CHECK(memory.allocate(513) == base + 512);
  CHECK(memory.allocate(kMiB) == base + 3 * 512);
  CHECK(book.used() == kDevicePage);
  CHECK(memory.allocate(kMiB + 1) == base + kDevicePage);
  CHECK(memory.allocate(2 * kMiB) == base + 2 * kDevicePage);
  CHECK(memory.allocate(2 * kMiB + 1) == base + 3 * kDevicePage);
  CHECK(book.used() == 5 * kDevicePage);
  CHECK(memory.charged_bytes() == book.used());
}

TEST_CASE("a page goes back with its last small allocation") {
  LocalCapacity book(kDevicePage);
  DeviceMemory memory(1, book);
  const auto first = memory.allocate(512);
  const auto second = memory.allocate(512);
  REQUIRE(first == device_window(1));
  CHECK(memory.release(*first) == 512);
  CHECK(book.used() == kDevicePage);
  CHECK(memory.release(*second) == 512);
  CHECK(book.used() == 0);
  CHECK(memory.release(*second) == std::nullopt);
}

TEST_CASE("capacity is exact and a refusal changes nothing") {
  LocalCapacity book(10 * kDevicePage + 1);
  DeviceMemory memory(0, book);
  const auto large = memory.allocate(9 * kDevicePage);
  REQUIRE(large);
  CHECK_FALSE(memory.allocate(kDevicePage + 1));
  CHECK(book.used() == 9 * kDevicePage);
  CHECK(memory.allocate(kDevicePage));
  CHECK_FALSE(memory.allocate(1));
  memory.release(*large);
  CHECK(memory.allocate(1) == device_window(0));
}

TEST_CASE("the lowest hole that fits is taken, neighbours merge") {
  LocalCapacity book(LocalCapacity::kUnlimited);
  DeviceMemory memory(0, book);
  std::vector<uint64_t> at;
  for (int i = 0; i < 6; ++i) at.push_back(*memory.allocate(4 * kMiB));
  memory.release(at[1]);
  memory.release(at[3]);
  CHECK(memory.allocate(6 * kMiB) == at[5] + 4 * kMiB);
  CHECK(memory.allocate(4 * kMiB) == at[1]);
  memory.release(at[1]);
  memory.release(at[2]);
  CHECK(memory.allocate(12 * kMiB) == at[1]);
}

TEST_CASE("find knows the allocation around an address") {
  LocalCapacity book(LocalCapacity::kUnlimited);
  DeviceMemory memory(2, book);
  const uint64_t at = *memory.allocate(3 * kMiB);
  CHECK(memory.find(at)->bytes == 3 * kMiB);
  CHECK(memory.find(at + 3 * kMiB - 1)->address == at);
  CHECK_FALSE(memory.find(at + 3 * kMiB));
  CHECK_FALSE(memory.find(at - 1));
}

TEST_CASE("address ranges cost no memory, are aligned and reused") {
  LocalCapacity book(kDevicePage);
  DeviceMemory memory(0, book);
  const auto first = memory.reserve_range(24 * kGiB);
  const auto second = memory.reserve_range(2 * kMiB, kGiB);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(*first >= device_window(0) + kDeviceWindowBytes / 2);
  CHECK(*second % kGiB == 0);
  CHECK(*second >= *first + 24 * kGiB);
  CHECK(book.used() == 0);
  CHECK(memory.release_range(*first));
  CHECK_FALSE(memory.release_range(*first));
  CHECK(memory.reserve_range(kGiB) == *first);
  CHECK_FALSE(memory.reserve_range(kDeviceWindowBytes));
}

namespace {

// Random calls; every answer is appended, so that two runs can be compared.
std::vector<uint64_t> random_run(unsigned seed, uint64_t capacity) {
  std::mt19937 random(seed);
  LocalCapacity book(capacity);
  DeviceMemory memory(0, book);
  std::map<uint64_t, uint64_t> live;
  std::vector<uint64_t> answers;
  for (int step = 0; step < 4000; ++step) {
    if (live.empty() || random() % 5 < 3) {
      const uint64_t bytes = 1 + random() % (random() % 3 == 0 ? 40 * kMiB : 2 * kMiB);
      const uint64_t used = book.used();
      const auto at = memory.allocate(bytes);
      answers.push_back(at.value_or(0));
      if (!at) {
        CHECK(book.used() == used);
        CHECK(capacity - used < round_up(bytes, kDevicePage));
        continue;
      }
      REQUIRE(*at % kDeviceAlignment == 0);
      const auto next = live.lower_bound(*at);
      REQUIRE((next == live.end() || *at + bytes <= next->first));
      REQUIRE((next == live.begin() || std::prev(next)->first + std::prev(next)->second <= *at));
      live.emplace(*at, bytes);
    } else {
      auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      REQUIRE(memory.release(victim->first) == victim->second);
      live.erase(victim);
    }
    REQUIRE(book.used() <= capacity);
    REQUIRE(book.used() == memory.charged_bytes());
  }
  for (const auto& [at, bytes] : live) REQUIRE(memory.release(at) == bytes);
  CHECK(book.used() == 0);
  CHECK(memory.allocate(3 * kMiB) == device_window(0));  // all holes merged again
  return answers;
}

}  // namespace

TEST_CASE("random calls never overlap, never exceed the capacity, repeat exactly") {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    const auto answers = random_run(seed, 600 * kMiB);
    CHECK(answers == random_run(seed, 600 * kMiB));
    CHECK(std::count(answers.begin(), answers.end(), 0u) > 0);
  }
}

TEST_CASE("a request of more than 1 MiB never shares a page") {
  LocalCapacity book(64 * kMiB);
  DeviceMemory memory(0, book);
  const uint64_t base = device_window(0);
  CHECK(memory.allocate(512) == base);
  CHECK(memory.allocate(kMiB + 1) == base + kDevicePage);
  CHECK(memory.allocate(kMiB) == base + 512);
  CHECK(memory.charged_bytes() == 2 * kDevicePage);
  CHECK(book.used() == 2 * kDevicePage);
}

TEST_CASE("an address range begins where it was asked to, a page at least") {
  LocalCapacity book(LocalCapacity::kUnlimited);
  DeviceMemory memory(0, book);
  CHECK(memory.reserve_range(kDevicePage).value() % kDevicePage == 0);
  CHECK(memory.reserve_range(kDevicePage, 1 << 30).value() % (1 << 30) == 0);
  CHECK(memory.reserve_range(kDevicePage, 512).value() % kDevicePage == 0);
}

TEST_CASE("half of a device's window is for memory, half for address ranges") {
  LocalCapacity book(LocalCapacity::kUnlimited);
  DeviceMemory memory(1, book);
  CHECK(device_window(1) == 0x2600'0000'0000);
  CHECK_FALSE(memory.allocate(0x0300'0000'0001));
  CHECK(memory.allocate(0x0300'0000'0000) == device_window(1));
  CHECK_FALSE(memory.allocate(1));  // all addresses are taken
  CHECK(book.used() == memory.charged_bytes());
  CHECK(memory.charged_bytes() == 0x0300'0000'0000);
  CHECK_FALSE(memory.reserve_range(0x0300'0000'0000 + kDevicePage));
  CHECK(memory.reserve_range(kDevicePage) == device_window(1) + 0x0300'0000'0000);
  CHECK(memory.reserve_range(0x0300'0000'0000 - kDevicePage));
  CHECK_FALSE(memory.reserve_range(kDevicePage));
  CHECK(kMaxDevices == 8);
}

TEST_CASE("what an alignment leaves out in front is a hole of its size") {
  LocalCapacity book(LocalCapacity::kUnlimited);
  DeviceMemory memory(0, book);
  const auto first = memory.reserve_range(kDevicePage, kDevicePage);
  const auto aligned = memory.reserve_range(4 * kDevicePage, 8 * kDevicePage);
  REQUIRE(*aligned > *first + kDevicePage);
  const uint64_t left = *aligned - (*first + kDevicePage);
  CHECK(memory.reserve_range(left + kDevicePage, kDevicePage) == *aligned + 4 * kDevicePage);
  CHECK(memory.reserve_range(left, kDevicePage) == *first + kDevicePage);
}

TEST_CASE("the largest small allocation goes back into its page") {
  LocalCapacity book(64 * kMiB);
  DeviceMemory memory(0, book);
  const auto low = memory.allocate(kSmallDeviceAllocation);
  const auto high = memory.allocate(kSmallDeviceAllocation);
  REQUIRE(*high == *low + kSmallDeviceAllocation);
  CHECK(memory.release(*low) == kSmallDeviceAllocation);
  CHECK(book.used() == kDevicePage);
  CHECK(memory.allocate(kDevicePage) == *low + kDevicePage);
  CHECK(memory.allocate(512) == *low);
}

TEST_CASE("below the first allocation there is none") {
  LocalCapacity book(64 * kMiB);
  DeviceMemory memory(0, book);
  CHECK_FALSE(memory.find(device_window(0)));
  const auto address = memory.allocate(3 * kMiB);
  CHECK_FALSE(memory.find(*address - 1));
  CHECK_FALSE(memory.find(0));
  CHECK(memory.find(*address)->address == *address);
}
