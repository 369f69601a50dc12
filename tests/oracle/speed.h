// The model's speed beside the real allocator's: the same requests to both, in one process.
#pragma once

#include <cstdint>

#include "model/command_list.h"
#include "model/version_profile.h"

namespace fragscope::oracle {

// Runs the list's `alloc` and `free` commands on both `repeats` times in turn and prints calls per
// second of CPU time, with spread. All other commands are an error. The list must free all it
// allocates. Exit code: 0, 1 (they gave different addresses), 3 (not such a list).
int compare_speed(const model::CommandList& list, const model::VersionProfile& profile,
                  uint64_t device_memory, unsigned repeats);

}  // namespace fragscope::oracle
