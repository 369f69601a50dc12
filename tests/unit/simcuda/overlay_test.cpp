#include "simcuda/overlay.h"

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "tests/support/catch.h"

using fragscope::simcuda::Overlay;

TEST_CASE("small writes read back until a kernel runs") {
  Overlay overlay;
  const int value = 7777777;
  overlay.write(0x1000, &value, sizeof value);
  int back = 0;
  overlay.read(0x1000, &back, sizeof back);
  CHECK(back == value);
  overlay.expire();
  overlay.read(0x1000, &back, sizeof back);
  CHECK(back == 0);
  CHECK(overlay.stored_bytes() == 0);
}

TEST_CASE("a large write leaves zeros and erases what it covers") {
  Overlay overlay;
  const int value = 5;
  overlay.write(0x2000, &value, sizeof value);
  const std::vector<char> large(Overlay::kLargestWrite + 1, 'x');
  overlay.write(0x1000, large.data(), large.size());
  int back = 1;
  overlay.read(0x2000, &back, sizeof back);
  CHECK(back == 0);
  CHECK(overlay.stored_bytes() == 0);
}

TEST_CASE("the store is bounded") {
  Overlay overlay;
  const std::vector<char> block(Overlay::kLargestWrite, 'x');
  for (uint64_t i = 0; i < 1000; ++i) overlay.write(i << 20, block.data(), block.size());
  CHECK(overlay.stored_bytes() <= Overlay::kCapacity);
}

TEST_CASE("a copy of what is not stored is not stored") {
  Overlay overlay;
  const int value = 5;
  overlay.write(0x2000, &value, sizeof value);
  overlay.copy(0x2000, 0x1000, sizeof value);
  int back = 1;
  CHECK_FALSE(overlay.read(0x2000, &back, sizeof back));
  CHECK(back == 0);
}

TEST_CASE("random small operations agree with plain memory") {
  std::mt19937 random(7);
  std::array<unsigned char, 4096> truth{};
  Overlay overlay;
  for (int step = 0; step < 20000; ++step) {
    const size_t at = random() % 4000;
    const size_t bytes = 1 + random() % 96;
    switch (random() % 4) {
      case 0: {
        std::array<unsigned char, 96> data{};
        for (auto& byte : data) byte = static_cast<unsigned char>(random());
        overlay.write(at, data.data(), bytes);
        std::memcpy(truth.data() + at, data.data(), bytes);
        break;
      }
      case 1: {
        const unsigned value = random() & 0xff;
        overlay.fill(at, value, 1, bytes);
        std::memset(truth.data() + at, static_cast<int>(value), bytes);
        break;
      }
      case 2: {
        const size_t to = random() % 4000;
        overlay.copy(to, at, bytes);
        std::memmove(truth.data() + to, truth.data() + at, bytes);
        break;
      }
      default: {
        std::array<unsigned char, 96> back{};
        overlay.read(at, back.data(), bytes);
        REQUIRE(std::memcmp(back.data(), truth.data() + at, bytes) == 0);
      }
    }
  }
}
