// One recorded process, read once: verified under its own rules, and, if asked, its client's calls
// per device, ready for any backend (replay/backend.h) and for sweeps.
//
// Threads: one at a time; the result is constant and may be read by many. Hostile traces give odd
// figures, never a crash.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replay/backend.h"
#include "replay/event_stream.h"
#include "replay/figures.h"
#include "replay/process_facts.h"
#include "replay/process_rules.h"
#include "replay/segments_at.h"

namespace fragscope::replay {

struct ReadSettings {
  bool with_calls = false;  // build the call lists
  bool with_seqs = false;   // … with the seqs of their events
  model::SplitRule split_rule = model::SplitRule::kReleased;
  std::optional<uint64_t> device_memory;  // bytes of the device, instead of the recorded one's
};

struct RecordedDevice {
  int32_t device = 0;
  // The recorded allocator, rebuilt; absent without a block plane.
  std::optional<VerifyCounts> verify;
  ReplayFigures figures;
  std::vector<model::SegmentSnapshot> segments;  // at the end
  std::optional<SegmentsAt> at_oom;
  CallList calls;
  // What an allocator could get: what the recorded one had when a request failed; else the device's
  // memory without what is known to be somebody else's. Absent: not known, unlimited.
  std::optional<uint64_t> capacity;
  std::optional<uint64_t> total_bytes;

  BackendDevice backend_device() const {
    return {device, capacity.value_or(model::LocalCapacity::kUnlimited), total_bytes, nullptr};
  }
};

struct RecordedProcess {
  BlockSource source = BlockSource::none;
  Rules rules;
  // No block plane: each cudaMalloc and cudaFree is taken as a request; `calls` are always there.
  bool modelled = false;
  bool empty = false;                    // a snapshot without a trace: nothing was verified
  std::string undecidable;               // why no what-if can be answered; empty: it can
  std::vector<std::string> assumptions;  // what the source cannot tell, in sentences
  uint64_t start_blocks = 0;             // blocks that lived when recording began
  std::vector<RecordedDevice> devices;   // by ordinal

  bool perfect() const;  // every verified device is right in all predictions
};

// What every backend assumes of a process with start_blocks.
inline constexpr const char* kStartAssumption =
    "what lived when recording began is requested first, in the order of its addresses; free "
    "memory that the allocator had cached by then is not there";

RecordedProcess read_process(EventStream& events, const ProcessFacts& facts,
                             const ReadSettings& settings);

}  // namespace fragscope::replay
