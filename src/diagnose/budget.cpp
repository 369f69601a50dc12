#include "diagnose/budget.h"

namespace fragscope::diagnose {
namespace {

constexpr std::array<const char*, kBudgetFigures> kNames = {
    "driver_bytes", "reserved_bytes", "allocated_bytes", "requested_bytes",
    "pinned_bytes", "ooms",           "fragmentation"};

void take(RunFigures& figures, BudgetFigure figure, std::optional<double> value, uint32_t pid,
          std::optional<int32_t> device) {
  if (!value) return;
  auto& kept = figures[static_cast<size_t>(figure)];
  if (!kept || *value > kept->value) kept = FigureValue{*value, pid, device};
}

std::optional<double> as_double(const std::optional<uint64_t>& value) {
  if (!value) return std::nullopt;
  return static_cast<double>(*value);
}

std::optional<double> fragmentation(const metrics::HeapFigures& heap) {
  if (!heap.reserved.peak || !heap.allocated.peak) return std::nullopt;
  if (*heap.reserved.peak == 0) return 0.0;
  return 1.0 - static_cast<double>(*heap.allocated.peak) / static_cast<double>(*heap.reserved.peak);
}

void take_device(RunFigures& figures, uint32_t pid, const metrics::DeviceMetrics& device) {
  const auto add = [&](BudgetFigure figure, std::optional<double> value) {
    take(figures, figure, value, pid, device.device);
  };
  add(BudgetFigure::driver, as_double(device.driver.peak));
  if (!device.heap) return;
  add(BudgetFigure::reserved, as_double(device.heap->reserved.peak));
  add(BudgetFigure::allocated, as_double(device.heap->allocated.peak));
  add(BudgetFigure::requested, as_double(device.heap->requested.peak));
  add(BudgetFigure::ooms, static_cast<double>(device.ooms.size()));
  add(BudgetFigure::fragmentation, fragmentation(*device.heap));
}

}  // namespace

const char* budget_figure_name(BudgetFigure figure) { return kNames[static_cast<size_t>(figure)]; }

RunFigures run_figures(const std::vector<metrics::ProcessMetrics>& processes) {
  RunFigures figures;
  for (const metrics::ProcessMetrics& process : processes) {
    const uint32_t pid = process.facts.pid;
    for (const auto& [index, device] : process.devices) take_device(figures, pid, device);
    take(figures, BudgetFigure::pinned, as_double(process.pinned_driver.peak), pid, std::nullopt);
  }
  return figures;
}

std::vector<BudgetCheck> check_limits(const RunFigures& run, const std::vector<Limit>& limits) {
  std::vector<BudgetCheck> checks;
  for (const Limit& limit : limits) {
    const auto& value = run[static_cast<size_t>(limit.figure)];
    checks.push_back({limit.figure, value, limit.most, std::nullopt,
                      value.has_value() && value->value <= limit.most});
  }
  return checks;
}

std::vector<BudgetCheck> check_regression(const RunFigures& run, const RunFigures& baseline,
                                          double tolerance) {
  std::vector<BudgetCheck> checks;
  for (size_t i = 0; i < kBudgetFigures; ++i) {
    if (!run[i] || !baseline[i]) continue;
    const auto figure = static_cast<BudgetFigure>(i);
    const double before = baseline[i]->value;
    const double most =
        figure == BudgetFigure::fragmentation ? before + tolerance : before * (1.0 + tolerance);
    checks.push_back({figure, run[i], most, before, run[i]->value <= most});
  }
  return checks;
}

}  // namespace fragscope::diagnose
