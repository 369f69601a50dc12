// Reading runs that no collector finished: logs -> trace bytes in memory, by the same code that
// drains them live. Nothing on disk is changed.
//
// Errors: those of LogReader::open and TraceReader::open_file. Damage in the middle is no error:
// the result holds all that was readable; an end that was not seen stays unsealed
// (ExitKind::running while `process_alive`, else vanished).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace fragscope::capture {

// Does the process that a log or trace names still run? False for zombies and for another process
// that got the same pid. Source of start_ticks: field 22 of /proc/PID/stat.
bool process_is_alive(uint32_t pid, uint64_t start_ticks);

// A log alone. `process_alive`: stop at the first record that is not final.
Result<std::vector<std::byte>> convert_log(const std::string& log_path, bool process_alive);

// A trace that its collector left unsealed, and the log with the rest. Whether the process lives is
// asked of /proc. The events of the trace keep their numbers; none appears twice.
Result<std::vector<std::byte>> recover_process(const std::string& trace_path,
                                               const std::string& log_path);

// The log that belongs to `trace_path`, which is looked for in `directories`; "" when there is
// none. (123-456-<hex>.fst and 123-456-<hex>.fslog.)
std::string find_log(const std::string& trace_path, const std::vector<std::string>& directories);

}  // namespace fragscope::capture
