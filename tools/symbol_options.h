// Options of the commands that name functions: where files of the recorded machine are found.
#pragma once

#include "symbolize/symbolizer.h"

namespace CLI {
class App;
}

namespace fragscope::tools {

// --sysroot, --debug-path, --debuginfod. `places` must outlive the parsing.
void add_symbol_options(CLI::App& command, symbolize::Places& places);

// What stands in the way of `places`, e.g. --debuginfod without servers; "" when nothing does.
std::string problem_of(const symbolize::Places& places);

}  // namespace fragscope::tools
