// The clock of the simulated devices' assumed times.
#pragma once

#include <time.h>

#include <cstdint>

namespace fragscope::simcuda {

inline constexpr uint64_t kSecondNs = 1'000'000'000;

inline uint64_t clock_ns(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecondNs + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace fragscope::simcuda
