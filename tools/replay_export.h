// `fragscope replay --export-snapshot`: one process's allocator at one moment, as a file of
// PyTorch.
//
// Threads: one at a time. Errors: one line on stderr and the exit code that is returned.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "replay/replayer.h"
#include "symbolize/symbolizer.h"
#include "tools/open_run.h"

namespace fragscope::tools {

struct ExportOptions {
  std::string output;
  std::string at = "end";            // end, peak, oom, or the seq of an event
  std::optional<uint32_t> pid;       // absent: the process with most events
  uint64_t trace_entries = 100'000;  // newest ones, by device
  replay::ReplayOptions replay;
  symbolize::Places places;
  bool json = false;
};

int export_snapshot(OpenRun& run, const ExportOptions& options);

}  // namespace fragscope::tools
