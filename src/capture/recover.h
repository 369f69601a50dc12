// Reading runs that no collector finished: logs -> trace bytes in memory, by the same code that
// drains them live. Nothing on disk is changed.
//
// The result always has a trailer with the log's counts; its exit is `running` or `vanished`, as
// nobody saw more. Errors: those of LogReader::open and TraceReader::open_file. Damage in the
// middle is no error: the result holds all that was readable, torn_records counts what was not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "capture/process_state.h"

namespace fragscope::capture {

// A log alone. `process_alive`: stop at the first record that is not final.
Result<std::vector<std::byte>> convert_log(const std::string& log_path, bool process_alive);
// The same; asks /proc whether the process lives.
Result<std::vector<std::byte>> convert_log(const std::string& log_path);

// A trace that its collector left unsealed, and the log with the rest. The events of the trace keep
// their numbers; none appears twice. A sealed trace is returned as it is. Of a file that is empty
// or has no readable header nothing counts as drained: the log is taken from its start.
Result<std::vector<std::byte>> recover_process(const std::string& trace_path,
                                               const std::string& log_path);

// The log that belongs to `trace_path` (a.fst -> a.fslog), looked for in `directories`; "" when
// there is none.
std::string find_log(const std::string& trace_path, const std::vector<std::string>& directories);

}  // namespace fragscope::capture
