// Measurements of a process -> its part of the report.
//
// Threads: one at a time. Ownership: borrows everything; the result is plain data.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "metrics/process_metrics.h"
#include "metrics/replay_metrics.h"
#include "report/report_data.h"
#include "symbolize/symbolizer.h"

namespace fragscope::report {

struct BuildOptions {
  size_t rows = 5;            // gaps, stacks and segments listed per moment
  size_t blocks_per_pin = 3;  // blocks listed per pinned segment
  size_t frames = 8;          // frames shown of a stack, from the innermost that is not ours
  bool fold = true;           // runs of frameworks' frames (symbolizer.h) become one line
};

// `symbols`: nullptr leaves every stack empty.
ProcessData build_process(const metrics::ProcessMetrics& measured, symbolize::Symbolizer* symbols,
                          const BuildOptions& options = {});

// `texts`: the process's text table.
std::vector<PhaseData> phases_of(const metrics::ProcessMetrics& measured,
                                 const std::unordered_map<uint32_t, std::string>& texts);

// The same with the figures of a replay in place of the recorded ones. Bytes that CUDA counts
// belong to the recording: they stay in a verify and are unknown in a what-if.
ProcessData build_replayed_process(const metrics::ProcessMetrics& measured,
                                   const metrics::ReplayMetrics& replayed);

// Finds the owner of memory that one process of the run opened and another exported.
void link_shared_memory(ReportData& report);

// The state at the process's end becomes unknown: levels and pictures of it go.
void mark_damaged(const DamageData& damage, ProcessData& process);

}  // namespace fragscope::report
