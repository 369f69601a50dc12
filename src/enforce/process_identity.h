// A process, told from later ones with its number.
//
// Read from /proc. Threads: any. Errors: none; what cannot be read counts as alive.
#pragma once

#include <cstdint>

namespace fragscope::enforce {

struct ProcessIdentity {
  uint32_t pid = 0;
  uint32_t pid_namespace = 0;  // in which it has that number
  uint64_t start_ticks = 0;    // field 22 of /proc/PID/stat
};

ProcessIdentity own_identity();

// False once its memory is gone: ended, waited for or not. Of a process of another pid namespace
// that is not to be seen: it counts as alive.
bool holds_memory(const ProcessIdentity& process);

}  // namespace fragscope::enforce
