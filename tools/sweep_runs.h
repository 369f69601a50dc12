// `fragscope sweep`: a command under every combination of a few values, each recorded, and what
// each combination cost.
//
// Every run leaves `<directory>/<n>-<values>-<repeat>.fsr`, `.log` (the command's output) and
// `.json` (the figures): a sweep that was interrupted takes up what is there and runs the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/vary.h"

namespace fragscope::tools {

struct SweepPlan {
  std::vector<Variable> variables;       // the first one changes slowest
  std::vector<std::string> run_options;  // for `fragscope run`: --gpu, --alloc-conf, …
  std::string metric;                    // regular expression with one group; empty: none
  std::string step_mark;  // instead: a mark or range of this text begins each step; empty: none
  unsigned repeats = 1;
  std::vector<std::string> command;
  std::string directory;  // exists
};

struct SweepFigures {
  int exit_code = 0;
  double seconds = 0;            // wall clock of the whole command
  std::optional<double> metric;  // of the last match in the output
  std::optional<uint64_t> reserved_peak;
  std::optional<uint64_t> allocated_peak;
  std::optional<uint64_t> driver_peak;
  std::optional<uint64_t> pinned_peak;
  std::optional<uint64_t> rss_peak;  // of all processes of the command: PSS, else RSS
  std::optional<uint64_t> shm_peak;  // of /dev/shm
  uint64_t ooms = 0;
};

struct SweepCombination {
  std::vector<std::string> values;  // of each variable
  std::vector<SweepFigures> runs;   // one per repeat
  bool failed() const;
  std::optional<double> mean_metric() const;
  double mean_seconds() const;
};

// `told`: a line before each run. Errors: kInvalidArgument (the command's words, the expression),
// kNoSpace, kPermission (the directory), kInternal when the command cannot be started.
Result<std::vector<SweepCombination>> run_sweep_plan(
    const SweepPlan& plan, const std::function<void(const std::string&)>& told);

// Index of the combination with the highest mean of the metric (without one: the shortest), among
// those in which no run failed; absent: all failed.
std::optional<size_t> winner_of(const std::vector<SweepCombination>& combinations);

}  // namespace fragscope::tools
