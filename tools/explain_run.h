// `fragscope explain RUN`: why memory was refused in a recorded run, moment by moment.
#pragma once

#include <string>

namespace fragscope::tools {

// A run directory, a trace or log file, a text trace or a snapshot; anything else is a text with a
// message in it.
bool is_recorded_run(const std::string& path);

// Prints the findings; the exit code.
int explain_run(const std::string& path, bool json);

}  // namespace fragscope::tools
