// The state of one device when recording began: its segments and blocks at the end (the snapshot),
// and its trace undone entry by entry, newest first.
//
// On the way each allocation gets the pool of the segment that it lies in, where the entry does not
// name one. What cannot be (a block handed out that is not there afterwards, an address outside
// every segment) is counted: somebody filtered or edited the trace, or another thread allocated
// between the two halves of the snapshot.
//
// Threads: one at a time. Errors: none.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "import/snapshot_parts.h"

namespace fragscope::imported {

struct StartSegment {
  uint64_t address = 0;
  uint64_t size = 0;
  uint32_t stack = 0;
  uint32_t pool = 0;
  uint16_t stream = 0;
  SegmentType type = SegmentType::unknown;
  bool expandable = false;
};

struct StartBlock {
  uint64_t address = 0;
  uint64_t size = kUnknown;  // of blocks that are gone at the end
  uint64_t requested = kUnknown;
  uint32_t stack = 0;
  bool pending = false;
};

struct Contradictions {
  uint64_t outside_segments = 0;  // allocations in no segment
  uint64_t blocks = 0;            // allocations and frees that cannot follow each other
  uint64_t segments = 0;          // segment events that cannot

  uint64_t total() const { return outside_segments + blocks + segments; }
};

struct DeviceHistory {
  std::vector<StartSegment> segments;  // by address
  std::vector<StartBlock> blocks;      // by address
  Contradictions contradictions;
};

// `parts.entries` of the device get pools.
DeviceHistory rewind_device(Snapshot& snapshot, int32_t device);

}  // namespace fragscope::imported
