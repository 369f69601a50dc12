// What would the levels be in a replay? Runs it and puts its figures beside the recorded ones.
//
// Units: bytes. Errors: those of replay::replay_process. Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "metrics/gauge.h"
#include "metrics/layout.h"
#include "metrics/process_metrics.h"
#include "replay/event_stream.h"
#include "replay/figures.h"
#include "replay/process_facts.h"
#include "replay/replayer.h"

namespace fragscope::metrics {

struct ReplayedDevice {
  int32_t device = 0;
  std::optional<replay::VerifyCounts> verify;
  KnownLevel reserved;
  KnownLevel allocated;
  KnownLevel active;
  KnownLevel requested;
  KnownLevel inactive_split;
  KnownLevel segments;
  std::optional<std::vector<replay::OomFact>> ooms;
  std::optional<uint64_t> capacity;
  std::optional<uint64_t> device_mallocs;
  std::optional<uint64_t> device_frees;
  std::optional<uint64_t> ooms_avoided;
  Layout at_end;
  std::optional<Moment> at_oom;  // the first request failed, in the recording or in the replay
};

struct ReplayMetrics {
  replay::ReplayMode mode = replay::ReplayMode::verified;
  std::string reason;
  std::string torch_version;
  std::string alloc_conf;
  std::vector<std::string> assumptions;
  std::vector<ReplayedDevice> devices;
  bool perfect = true;  // every prediction was right
};

Result<ReplayMetrics> measure_replay(replay::EventStream& events, const replay::ProcessFacts& facts,
                                     const replay::ReplayOptions& options);

}  // namespace fragscope::metrics
