// The allocator's state at one moment of a replay, and what led to it: what
// torch.cuda.memory._snapshot() would have shown there.
//
// Without what-if settings the recorded allocator is rebuilt up to the moment; with them, and for
// programs without a block plane, the client's calls up to the moment are recomputed, on the device
// that the whole recording tells of.
//
// Units: bytes, handles. Threads: one at a time. Errors: those of replay_process(), and
// kInvalidArgument with the reason where a what-if cannot be answered.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "model/caching_allocator.h"
#include "replay/replayer.h"

namespace fragscope::replay {

struct StateSettings {
  std::optional<uint64_t> seq;      // after this event, and after the call it ends; absent: the end
  size_t trace_entries = SIZE_MAX;  // newest ones that are kept, by device
};

// The event behind something: where its call stack and its time are told.
struct StateOrigin {
  uint64_t seq = 0;
  uint64_t time_ns = 0;  // CLOCK_MONOTONIC
  uint32_t stack = kNoStack;
};

struct StateEntry {
  model::TraceAction action = model::TraceAction::kAlloc;
  uint64_t address = 0;  // kOom: free bytes of the device
  uint64_t size = 0;     // as in model::TraceEntry
  uint64_t stream = 0;
  model::PoolId pool;
  StateOrigin origin;
};

struct DeviceState {
  int32_t device = 0;
  std::vector<model::SegmentSnapshot> segments;  // by address
  std::deque<StateEntry> trace;                  // oldest first
  // By address: of the live blocks, of the segments and mapped ranges.
  std::unordered_map<uint64_t, StateOrigin> blocks;
  std::unordered_map<uint64_t, StateOrigin> ranges;
};

struct ProcessState {
  ReplayMode mode = ReplayMode::verified;
  model::VersionProfile profile;
  model::AllocatorConfig config;     // that held at the moment
  std::vector<DeviceState> devices;  // by ordinal
};

Result<ProcessState> state_at(EventStream& events, const ProcessFacts& facts,
                              const ReplayOptions& options, const StateSettings& settings);

}  // namespace fragscope::replay
