// Samples of the host's memory -> plain data of a report.
#pragma once

#include <optional>

#include "report/report_data.h"
#include "tools/open_run.h"

namespace fragscope::tools {

// Processes are marked `recorded` by the run's traces.
std::optional<report::HostMemoryData> host_memory_data(const OpenRun& run);

// Its number where it was recorded; a process of a container calls itself otherwise.
uint32_t pid_on_host(const trace::ProcessInfo& process);

}  // namespace fragscope::tools
