// What `fragscope run` says after the run: a few lines on stderr.
#pragma once

#include <string>

#include "capture/collector.h"
#include "tools/run_plan.h"

namespace fragscope::tools {

struct RunOutcome {
  std::string directory;  // as the user wrote it
  const RunPlan& plan;
  const capture::Summary& summary;
};

void print_run_summary(const RunOutcome& outcome);

}  // namespace fragscope::tools
