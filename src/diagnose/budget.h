// Does a run stay within given limits, and is it worse than an earlier run? The arithmetic of
// `fragscope check-budget`.
//
// A figure of a run is the largest of its processes and devices. A process counts only where it
// tells: one whose blocks were not recorded has no reserved bytes. A figure that no process tells
// is unknown, and a limit on it is not kept (nobody can say that it was).
//
// Units: bytes; fragmentation in shares of 1. Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "metrics/process_metrics.h"

namespace fragscope::diagnose {

enum class BudgetFigure : uint8_t {
  driver,         // device memory held by CUDA's calls, peak
  reserved,       // segments of the framework's allocator, peak
  allocated,      // blocks in the client's hands, peak
  requested,      // what the client asked for, peak
  pinned,         // page-locked host memory, peak
  ooms,           // requests that the allocator gave up on, count
  fragmentation,  // 1 − peak allocated / peak reserved
};
inline constexpr size_t kBudgetFigures = 7;

// "driver_bytes", …, "fragmentation": as in JSON.
const char* budget_figure_name(BudgetFigure figure);

struct FigureValue {
  double value = 0;  // byte counts below 2^53 are exact
  uint32_t pid = 0;
  std::optional<int32_t> device;  // absent: not of a device
};

using RunFigures = std::array<std::optional<FigureValue>, kBudgetFigures>;

RunFigures run_figures(const std::vector<metrics::ProcessMetrics>& processes);

struct Limit {
  BudgetFigure figure;
  double most = 0;
};

struct BudgetCheck {
  BudgetFigure figure = BudgetFigure::driver;
  std::optional<FigureValue> value;  // absent: unknown
  double limit = 0;
  std::optional<double> baseline;  // the limit comes from an earlier run's figure
  bool kept = false;
};

std::vector<BudgetCheck> check_limits(const RunFigures& run, const std::vector<Limit>& limits);

// One check for each figure that both runs tell: at most `tolerance` (share) more than the
// baseline; fragmentation, a share itself, at most `tolerance` above it.
std::vector<BudgetCheck> check_regression(const RunFigures& run, const RunFigures& baseline,
                                          double tolerance);

}  // namespace fragscope::diagnose
