// Policy sweep: one recorded client, many allocators and settings, all cores.
//
// A configuration file has one configuration a line, `BACKEND [SETTINGS]` or `SETTINGS` alone (then
// the backend is `torch`): backends of replay/backend.h, settings in PyTorch's grammar. Blank lines
// and lines that begin with # are skipped.
//
//   torch
//   max_split_size_mb:128
//   torch-2.4 max_split_size_mb:128,roundup_power2_divisions:8
//   cuda
//   plan
//
// Threads: run_sweep() starts its own and joins them; the progress function is called by one of
// them at a time. Results do not depend on their number.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "replay/backend.h"
#include "replay/recorded_process.h"

namespace fragscope::replay {

struct SweepConfig {
  std::string backend = "torch";
  std::string alloc_conf;
};

// `name` is used in errors: "sweep.txt:3: …". kInvalidArgument; an empty list is one as well.
Result<std::vector<SweepConfig>> parse_sweep(std::string_view text, const std::string& name);

// One configuration on one device.
struct SweepRow {
  size_t config = 0;  // index
  size_t device = 0;  // index into the process's devices
  ReplayFigures figures;
  uint64_t ooms_avoided = 0;
  std::optional<uint64_t> live_peak;  // plan
  bool fits = true;                   // plan
};

// Every backend on every device of `process`, by configuration, then device. `threads` 0: all
// cores. `progress`, if there is one: how many of the runs are done.
std::vector<SweepRow> run_sweep(const RecordedProcess& process,
                                std::span<const std::unique_ptr<Backend>> backends,
                                unsigned threads, const std::function<void(size_t)>& progress = {});

}  // namespace fragscope::replay
