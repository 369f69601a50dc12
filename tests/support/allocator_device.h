// A simulated device with an allocator, for tests that name their blocks. Sizes in MiB.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "model/caching_allocator.h"
#include "model/simulated_segments.h"
#include "tests/support/catch.h"
#include "tests/support/invariants.h"

namespace fragscope::model {

struct Device {
  explicit Device(const char* settings, const char* version, uint64_t mib = 1 << 20)
      : capacity(mib * kMiB),
        memory(0, capacity),
        segments(memory, capacity, mib * kMiB),
        profile(version_profile(version)),
        allocator(parse_config(settings, profile).value(), profile, segments) {}

  uint64_t alloc(const std::string& name, double mib, uint64_t stream = 0) {
    const auto result = allocator.malloc(static_cast<uint64_t>(mib * kMiB), stream);
    REQUIRE(check_invariants(allocator).empty());
    if (!result.ok()) return 0;
    at[name] = result.address;
    return result.block_size;
  }
  void free(const std::string& name) {
    REQUIRE(allocator.free(at.at(name)) != FreeOutcome::kUnknown);
    at.erase(name);
    REQUIRE(check_invariants(allocator).empty());
  }
  void free_all(const std::vector<std::string>& names) {
    for (const auto& name : names) free(name);
  }
  double reserved() const {
    return static_cast<double>(allocator.stats().reserved_bytes.all.current) / kMiB;
  }
  double allocated() const {
    return static_cast<double>(allocator.stats().allocated_bytes.all.current) / kMiB;
  }

  LocalCapacity capacity;
  DeviceMemory memory;
  SimulatedSegments segments;
  const VersionProfile& profile;
  CachingAllocator allocator;
  std::map<std::string, uint64_t> at;
};

// Cached blocks x and y of 30 MiB and h of 20 that have been passed over 7, 1 and 1 times.
inline void age_blocks(Device& d) {
  for (const char* name : {"x", "y"}) d.alloc(name, 30);
  d.alloc("h", 20);
  d.free_all({"x", "h"});
  for (int i = 0; i < 6; ++i) {
    d.alloc("h", 20);
    d.free("h");
  }
  d.free("y");
}

inline std::string every_version() {
  return GENERATE("2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10",
                  "2.11", "2.12", "2.13", "2.14", "2.15");
}

inline std::string every_expandable_version() {
  return GENERATE("2.1", "2.4", "2.5", "2.6", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.15");
}

}  // namespace fragscope::model
