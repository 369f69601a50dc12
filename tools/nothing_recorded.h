// Why a run has no process in it, as far as it can be told.
//
// Threads: values.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace fragscope::tools {

// File in the log directory that a recorded process leaves which loaded CUDA's driver and asked it
// for no memory (shim/session.cpp), and the note of run.json that says so.
inline constexpr const char* kDriverSeenFile = ".driver-seen";
inline constexpr const char* kDriverSeenNote = "driver_seen";

// The likely reason, as a sentence without a full stop. `notes`: run.json's; `program`: the
// command.
std::string why_nothing_recorded(const std::map<std::string, std::string>& notes,
                                 const std::vector<std::string>& command);

}  // namespace fragscope::tools
