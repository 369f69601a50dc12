// The log of a running process, found through /proc.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace fragscope::tools {

// A path under which this process can open the log that `pid` writes (through /proc/PID/root where
// it lives in another mount namespace). kNotFound: no such process, or it is not recorded (yet);
// kPermission: it belongs to somebody else.
Result<std::string> find_log_of(uint32_t pid);

}  // namespace fragscope::tools
