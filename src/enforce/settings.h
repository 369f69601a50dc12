// The settings of a served allocator: PyTorch's grammar, read as one of its releases reads it.
//
// Errors: kInvalidArgument with one line that names the text and what is wrong with it.
#pragma once

#include <string_view>

#include "base/result.h"
#include "model/allocator_config.h"
#include "model/version_profile.h"

namespace fragscope::enforce {

// Served memory comes in whole cudaMalloc segments: expandable segments and other back ends are
// refused. `previous`: what is in force; options that are not named keep their value.
Result<model::AllocatorConfig> read_settings(std::string_view text,
                                             const model::VersionProfile& profile,
                                             const model::AllocatorConfig& previous = {});

}  // namespace fragscope::enforce
