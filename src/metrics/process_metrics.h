// All questions about one process, answered in two passes over its events: the first finds the
// levels and the moment of the peak, the second takes pictures of the segments at the moments that
// matter.
//
// Units: bytes. Threads: one at a time. Unknown is absent, never 0.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "metrics/coverage.h"
#include "metrics/driver_bytes.h"
#include "metrics/failed_calls.h"
#include "metrics/gauge.h"
#include "metrics/heap.h"
#include "metrics/layout.h"
#include "metrics/memory_info.h"
#include "metrics/phases.h"
#include "metrics/pinned_bytes.h"
#include "metrics/shared_memory.h"
#include "replay/event_stream.h"
#include "replay/figures.h"
#include "replay/process_facts.h"

namespace fragscope::metrics {

// The segments of a device at one moment.
struct Moment {
  uint64_t seq = 0;      // after this event; 0: at the end
  uint64_t time_ns = 0;  // CLOCK_MONOTONIC; 0: at the end
  Layout layout;
};

struct DeviceMetrics {
  int32_t device = 0;
  replay::DeviceFacts facts;
  KnownLevel driver;
  std::optional<DriverAccounts> accounts;  // absent: no driver plane
  std::optional<MemoryInfo> memory_info;   // absent: the program did not ask
  std::optional<HeapFigures> heap;         // absent: no block plane
  std::vector<replay::OomFact> ooms;
  std::optional<Moment> at_peak;  // allocated bytes were highest for the first time
  std::optional<Moment> at_oom;   // the first request failed
  std::optional<Moment> at_end;
};

struct ProcessMetrics {
  replay::ProcessFacts facts;
  replay::BlockSource source = replay::BlockSource::none;
  std::map<int32_t, DeviceMetrics> devices;
  KnownLevel pinned_driver;
  std::optional<TorchHostBytes> torch_host;  // absent: cannot be told from the rest
  std::vector<PinnedHolder> pinned_holders;
  std::vector<Phase> phases;
  Coverage coverage;
  uint64_t events = 0;  // of all planes
  uint64_t driver_events = 0;
  uint64_t block_events = 0;
  uint64_t failed_calls = 0;  // driver calls that returned an error
  uint64_t probes = 0;        // of them: for a kind of handle, answered with a refusal
  std::vector<FailedCall> failures;
  SharedMemory shared;
  uint64_t anomalies = 0;                 // events that contradict each other
  std::vector<std::string> source_notes;  // what a snapshot leaves open, in sentences
};

// The segments of each named device after the last event up to a seq; a device of which there is no
// such event is not in the answer. `seq` of a moment is that of the event.
std::map<int32_t, Moment> moments_at(replay::EventStream& events, const replay::ProcessFacts& facts,
                                     const std::map<int32_t, uint64_t>& seqs);

ProcessMetrics measure_process(replay::EventStream& events, const replay::ProcessFacts& facts);

}  // namespace fragscope::metrics
