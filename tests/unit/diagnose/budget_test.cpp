#include "diagnose/budget.h"

#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::diagnose;

namespace {

metrics::ProcessMetrics process(uint32_t pid, uint64_t reserved, uint64_t allocated) {
  metrics::ProcessMetrics metrics;
  metrics.facts.pid = pid;
  metrics::DeviceMetrics device;
  device.driver.peak = reserved + 100;
  device.heap.emplace();
  device.heap->reserved.peak = reserved;
  device.heap->allocated.peak = allocated;
  metrics.devices[0] = device;
  return metrics;
}

const FigureValue& value_of(const RunFigures& figures, BudgetFigure figure) {
  const auto& value = figures[static_cast<size_t>(figure)];
  REQUIRE(value);
  return *value;
}

}  // namespace

TEST_CASE("budget: a run's figure is the largest of its processes") {
  const RunFigures figures = run_figures({process(1, 1000, 900), process(2, 800, 200)});
  CHECK(value_of(figures, BudgetFigure::reserved).value == 1000);
  CHECK(value_of(figures, BudgetFigure::reserved).pid == 1);
  CHECK(value_of(figures, BudgetFigure::driver).value == 1100);
  CHECK(value_of(figures, BudgetFigure::fragmentation).value == 0.75);
  CHECK(value_of(figures, BudgetFigure::fragmentation).pid == 2);
  CHECK_FALSE(figures[static_cast<size_t>(BudgetFigure::pinned)]);
  CHECK_FALSE(figures[static_cast<size_t>(BudgetFigure::requested)]);
}

TEST_CASE("budget: a limit is kept up to its last byte, and never by what is unknown") {
  const RunFigures figures = run_figures({process(1, 1000, 900)});
  const auto checks = check_limits(figures, {{BudgetFigure::reserved, 1000},
                                             {BudgetFigure::reserved, 999},
                                             {BudgetFigure::pinned, 1e15}});
  CHECK(checks[0].kept);
  CHECK_FALSE(checks[1].kept);
  CHECK_FALSE(checks[2].kept);
  CHECK_FALSE(checks[2].value);
}

TEST_CASE("budget: growth over a baseline counts for every figure both runs tell") {
  const RunFigures before = run_figures({process(1, 1000, 1000)});
  const RunFigures after = run_figures({process(1, 1010, 1000)});
  const auto within = check_regression(after, before, 0.011);
  CHECK(within.size() == 5);  // driver, reserved, allocated, ooms, fragmentation
  for (const BudgetCheck& check : within) CHECK(check.kept);
  size_t exceeded = 0;
  for (const BudgetCheck& check : check_regression(after, before, 0.001)) {
    exceeded += check.kept ? 0 : 1;
  }
  CHECK(exceeded == 3);  // driver (by 0.9 %), reserved (by 1 %), fragmentation (by 1 point)
}
