// First difference between the model's and the library's answer to one command list.
#pragma once

#include <string>

#include "model/command_runner.h"

namespace fragscope::oracle {

// Empty if the answers are equal. Free_completed entries of one command are compared as a set: the
// library walks its streams in the order of a hash map. Where that order mattered, the peak and
// sums of inactive_split are left out.
std::string first_difference(const model::ListResult& from_model,
                             const model::ListResult& from_library,
                             const model::VersionProfile& profile);

}  // namespace fragscope::oracle
