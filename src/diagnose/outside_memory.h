// The process's device memory that its caching allocator does not hold, by the library that asked
// CUDA for it.
//
// Units: bytes. Threads: one at a time. Physical memory of the VMM calls counts as outside as far
// as it exceeds the mapped pages of expandable segments.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "diagnose/attribution.h"
#include "metrics/driver_bytes.h"
#include "metrics/layout.h"

namespace fragscope::diagnose {

class OutsideMemory {
 public:
  void feed(const Event& event);
  // `layout`: the allocator's segments now. Adds up to driver_bytes() less their sizes; what no
  // recorded call explains has the library "unknown".
  std::vector<OutsideShare> at(int32_t device, const metrics::Layout& layout,
                               StackRoles& roles) const;
  uint64_t driver_bytes(int32_t device) const { return driver_.total_now(device); }

 private:
  struct Held {
    uint64_t size = 0;
    int32_t device = 0;
    uint32_t stack = kNoStack;
    uint64_t seq = 0;
  };
  metrics::DriverBytes driver_;
  std::unordered_map<uint64_t, Held> held_;  // by address or handle
};

}  // namespace fragscope::diagnose
