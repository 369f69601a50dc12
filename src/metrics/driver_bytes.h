// How many bytes of device memory did the process hold, by CUDA's own calls?
//
// Counts cudaMalloc and its kin, stream-ordered allocations and physical memory of the VMM calls
// (until it is released and unmapped); not managed memory, address space or what the policy of
// --enforce serves from its segments. A free is found by its address, whichever call made it; a
// context's end ends all of its device's. Units: bytes. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "event/event.h"
#include "metrics/gauge.h"

namespace fragscope::metrics {

class DriverBytes {
 public:
  void feed(const Event& event);

  // By device ordinal; only devices that had an allocation.
  const std::map<int32_t, Gauge>& devices() const { return devices_; }

 private:
  struct Allocation {
    uint64_t size = 0;
    int32_t device = 0;
  };
  struct Physical {
    uint64_t size = 0;
    int32_t device = 0;
    uint32_t maps = 0;
    bool released = false;
  };
  struct Mapping {
    uint64_t size = 0;
    uint64_t handle = 0;
  };

  void begin(const Event& event);
  void end(uint64_t address);
  void begin_physical(const Event& event);
  void drop_if_unused(uint64_t handle);
  void map(const Event& event);
  void unmap(const Event& event);
  void end_device(int32_t device);

  std::unordered_map<uint64_t, Allocation> live_;
  std::unordered_map<uint64_t, Physical> physical_;  // by handle
  std::map<uint64_t, Mapping> mappings_;             // by address
  std::map<int32_t, Gauge> devices_;
};

}  // namespace fragscope::metrics
