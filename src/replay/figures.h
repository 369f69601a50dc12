// What a replay of one device ends with: levels under PyTorch's names, out-of-memory events, and
// how far the model's predictions were right.
//
// Units: bytes, counts. What the source cannot tell is absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "event/event.h"

namespace fragscope::replay {

struct Level {
  uint64_t peak = 0;
  uint64_t final = 0;  // when the process ended

  void raise_peak(uint64_t value) {
    if (value > peak) peak = value;
  }
};

struct OomFact {
  uint64_t seq = 0;
  uint64_t time_ns = 0;
  uint32_t stack = kNoStack;
  std::optional<uint64_t> requested;    // bytes, as the allocator rounded them
  std::optional<uint64_t> device_free;  // bytes the device had left
};

struct ReplayFigures {
  Level reserved;
  Level allocated;
  std::optional<Level> requested;
  Level active;
  Level inactive_split;
  Level segments;  // number of segments
  uint64_t device_mallocs = 0;
  uint64_t device_frees = 0;
  uint64_t alloc_retries = 0;  // flushes of the cache after a failed call for device memory
  std::vector<OomFact> ooms;
};

struct Divergence {
  uint64_t seq = 0;       // of the recorded event
  std::string predicted;  // what the model said
  std::string recorded;   // what was recorded
  std::string rule;       // the model's rule that decided
  std::string reason;     // why the recording may be otherwise: the likely ones
};

struct VerifyCounts {
  uint64_t block_events = 0;     // allocations and refusals whose outcome was predicted
  uint64_t address_matches = 0;  // … right: the same place and, where recorded, the same size
  uint64_t segment_calls = 0;    // calls for device memory, recorded or predicted
  uint64_t segment_matches = 0;  // … that are both, at the same moment, with the same size
  uint64_t resyncs = 0;          // the model was put into the recorded state again
  uint64_t lost_blocks = 0;      // live blocks that could not be put back then
  uint64_t unknown_frees = 0;    // frees of addresses that no live block starts at
  // Requests that the allocator refused itself, or released memory for, without asking CUDA: a
  // memory fraction, which no recording tells. Taken from the recording as CUDA's refusals are.
  uint64_t unasked_refusals = 0;
  std::optional<Divergence> first_divergence;

  bool perfect() const {
    return block_events == address_matches && segment_calls == segment_matches;
  }
};

}  // namespace fragscope::replay
