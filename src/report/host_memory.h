// Memory of the host (host.jsonl of a run), rendered for people and as JSON (SCHEMA.md).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/report_data.h"

namespace fragscope::report {

nlohmann::ordered_json host_memory_json(const HostMemoryData& host);

// One line for the whole, one for a control group with a limit, one for /dev/shm, one for each of
// the `rows` processes with most memory. Names are printable.
std::vector<std::string> host_memory_lines(const HostMemoryData& host, size_t rows);

}  // namespace fragscope::report
