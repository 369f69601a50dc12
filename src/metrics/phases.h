// What was held during the phases that the program named (NVTX ranges, fragscope.range())?
//
// A phase is all ranges of one text, on any thread; ranges that were open when the recording ended
// count to its end. Pops without a push (the range began before the recording) are left out. Bytes
// are sums over the devices. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "event/event.h"

namespace fragscope::metrics {

struct Phase {
  uint32_t text = 0;  // id in the process's text table
  uint64_t first_seq = 0;
  uint64_t count = 0;
  uint64_t total_ns = 0;
  uint64_t driver_peak = 0;                // bytes held from CUDA
  std::optional<uint64_t> allocated_peak;  // bytes of blocks; absent: no block plane
  std::optional<int64_t>
      allocated_growth;  // at the ends of its ranges minus at their starts, summed
};

struct HeldBytes {
  uint64_t driver = 0;
  std::optional<uint64_t> allocated;
};

class Phases {
 public:
  // True when `held` is looked at for this event: a range is open, or begins or ends with it.
  bool wants(const Event& event) const;
  // `held`: after the event.
  void feed(const Event& event, const HeldBytes& held);
  // By first appearance.
  std::vector<Phase> finish(uint64_t end_ns);

 private:
  struct Range {
    uint32_t text = 0;
    uint64_t start_ns = 0;
    uint64_t driver_peak = 0;
    std::optional<uint64_t> allocated_peak;
    std::optional<uint64_t> allocated_start;
  };
  Range open(const Event& event, const HeldBytes& held);
  void close(const Range& range, uint64_t end_ns);

  std::map<uint32_t, std::vector<Range>> pushed_;  // by thread
  std::map<uint64_t, Range> started_;              // by number of the range
  std::map<uint32_t, Phase> phases_;               // by text
  HeldBytes last_;
};

}  // namespace fragscope::metrics
