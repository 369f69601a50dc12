// The same command on a real card and on its simulated twin: did the program ask for the same, and
// did it need the same?
//
// Requests and what the framework's allocator makes of them are exact on a simulated card: they
// must be equal. What CUDA's libraries take beside it (contexts, workspaces, NCCL) is assumed
// there: the difference is told, and is no failure.
//
// Units: bytes, counts. Absent: that run does not tell. Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "metrics/process_metrics.h"
#include "replay/recorded_process.h"

namespace fragscope::diagnose {

// One device of one process of either run; borrowed. Absent parts: nullptr.
struct TwinDevice {
  const replay::RecordedDevice* recorded = nullptr;  // with calls and their seqs
  const metrics::DeviceMetrics* measured = nullptr;
};

struct RequestComparison {
  uint64_t real = 0;  // requests, frees and flushes of each run
  uint64_t twin = 0;
  uint64_t equal = 0;  // from the first one on
  struct Difference {
    std::string real;  // "alloc 2097152"; "nothing" behind the end
    std::string twin;
    std::optional<uint64_t> real_seq;  // of the event
    std::optional<uint64_t> twin_seq;
  };
  std::optional<Difference> first;

  bool all_equal() const { return !first; }
};

struct TwinFigure {
  const char* name;
  bool exact = true;  // false: assumed on a simulated card
  std::optional<uint64_t> real;
  std::optional<uint64_t> twin;

  bool differs() const { return real != twin; }
};

struct TwinComparison {
  RequestComparison requests;
  std::vector<TwinFigure> figures;

  // All requests and all exact figures are equal.
  bool equal() const;
};

TwinComparison compare_twins(const TwinDevice& real, const TwinDevice& twin);

// Streams and pools are numbered by their first use, so that handles do not matter.
RequestComparison compare_requests(const replay::CallList& real, const replay::CallList& twin);

}  // namespace fragscope::diagnose
