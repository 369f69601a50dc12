// The options of `fragscope run` on its command line.
#pragma once

#include "tools/run_options.h"

namespace CLI {
class App;
}

namespace fragscope::tools {

// `options` outlives the parsing.
void add_run_options(CLI::App& command, RunOptions& options);

}  // namespace fragscope::tools
