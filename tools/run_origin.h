// What run.json says of where a run comes from: command, host, time.
//
// Threads: any. Errors: none; what cannot be read is empty.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

namespace fragscope::tools {

std::string utc_text(std::time_t time);  // RFC 3339
std::string host_name();

// Of a process that runs, as /proc has it.
std::vector<std::string> command_line_of(uint32_t pid);
std::string start_time_of(uint32_t pid);  // RFC 3339, UTC

}  // namespace fragscope::tools
