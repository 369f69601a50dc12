// What `fragscope run` says after the run: a few lines on stderr.
#pragma once

#include <string>

#include "capture/collector.h"

namespace fragscope::tools {

struct RunOutcome {
  std::string directory;  // as the user wrote it
  const capture::Summary& summary;
  std::string nothing_recorded;  // why, should there be nothing
};

void print_run_summary(const RunOutcome& outcome);

}  // namespace fragscope::tools
