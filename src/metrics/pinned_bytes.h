// How much host memory did the process keep page-locked through CUDA?
//
// Counts cudaHostAlloc/cudaMallocHost and cudaHostRegister; the end of a context ends what was
// allocated (not registered) on its device. Units: bytes. Threads: one at a time.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "event/event.h"
#include "metrics/gauge.h"

namespace fragscope::metrics {

class PinnedBytes {
 public:
  void feed(const Event& event);
  const Gauge& gauge() const { return gauge_; }

 private:
  struct Allocation {
    uint64_t size = 0;
    int32_t device = 0;
    bool registered = false;
    uint64_t context = kUnknown;
  };
  void begin(const Event& event);
  void end(uint64_t address);
  void end_context(const Event& event);

  std::unordered_map<uint64_t, Allocation> live_;
  Gauge gauge_;
};

}  // namespace fragscope::metrics
