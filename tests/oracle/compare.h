// First difference between the model's and the library's answer to one command list.
#pragma once

#include <string>

#include "model/command_runner.h"

namespace fragscope::oracle {

// Empty if the answers are equal in their normal form (tests/support/answer_digest.h).
std::string first_difference(const model::ListResult& from_model,
                             const model::ListResult& from_library,
                             const model::VersionProfile& profile);

}  // namespace fragscope::oracle
