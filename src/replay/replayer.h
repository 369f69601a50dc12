// Replays one process: verify under its own configuration, then, if asked, what-if under another.
//
// Threads: one at a time. Errors: kInvalidArgument for a configuration that the release refuses
// (PyTorch's own text). Hostile traces give odd figures, never a crash.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/caching_allocator.h"
#include "replay/event_stream.h"
#include "replay/figures.h"
#include "replay/process_facts.h"
#include "replay/process_rules.h"
#include "replay/segments_at.h"

namespace fragscope::replay {

struct ReplayOptions {
  // What-if settings; with all of them absent only verify runs, and its figures are the answer.
  std::optional<std::string> alloc_conf;                      // PyTorch's own grammar
  std::optional<uint64_t> max_split_size_bytes;               // put into alloc_conf last
  std::optional<uint64_t> device_memory;                      // bytes of the device
  std::optional<std::string> torch_version;                   // release whose rules hold
  model::SplitRule split_rule = model::SplitRule::kReleased;  // other values: tests only
  bool what_if() const {
    return alloc_conf || max_split_size_bytes || device_memory || torch_version;
  }
};

enum class ReplayMode : uint8_t {
  verified,    // figures of the recorded configuration
  what_if,     // figures of another configuration
  modelled,    // no block plane: the driver's calls as requests to a caching allocator
  undecidable  // a what-if that the source cannot answer; `reason` says why
};

struct DeviceReplay {
  int32_t device = 0;
  std::optional<VerifyCounts> verify;  // absent: no block plane
  std::optional<ReplayFigures> figures;
  std::optional<uint64_t> capacity;  // what-if: bytes the allocator could get; absent: unlimited
  uint64_t ooms_avoided = 0;         // recorded refusals that did not come
  std::vector<model::SegmentSnapshot> segments;  // at the end
  // When the first request failed, in the recording or in the replay.
  std::optional<SegmentsAt> at_oom;
};

struct ProcessReplay {
  ReplayMode mode = ReplayMode::verified;
  std::string reason;  // of undecidable
  BlockSource source = BlockSource::none;
  std::string torch_version;             // release whose rules were used
  bool torch_version_assumed = false;    // the trace names none that is known: the newest
  std::string alloc_conf;                // configuration of the figures
  std::vector<std::string> assumptions;  // what the source cannot tell, in sentences
  std::vector<DeviceReplay> devices;     // by ordinal

  bool perfect() const;  // every verified device is right in all predictions
};

// The rules that the options ask for, where they name none the recorded ones.
Result<Rules> asked_rules(const ProcessFacts& facts, const ReplayOptions& options);

Result<ProcessReplay> replay_process(EventStream& events, const ProcessFacts& facts,
                                     const ReplayOptions& options);

}  // namespace fragscope::replay
