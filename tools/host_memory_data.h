// Samples of the host's memory -> plain data of a report.
#pragma once

#include <optional>

#include "report/report_data.h"
#include "tools/open_run.h"

namespace fragscope::tools {

// Processes are marked `recorded` by the run's traces.
std::optional<report::HostMemoryData> host_memory_data(const OpenRun& run);

}  // namespace fragscope::tools
