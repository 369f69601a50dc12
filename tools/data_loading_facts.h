// A recorded run -> what data loading cost in it (diagnose/data_loading.h).
#pragma once

#include "diagnose/data_loading.h"
#include "tools/open_run.h"

namespace fragscope::tools {

// `cores`: of the machine that is asked about; 0: this one's. Reads the events of every process.
diagnose::LoadingFacts data_loading_facts(OpenRun& run, uint64_t cores);

}  // namespace fragscope::tools
