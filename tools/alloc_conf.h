// PyTorch's `key:value,key:value` settings: merging what the user asks of us into what the user has
// set already, for the release that will read it.
//
// Pure. Errors: kInvalidArgument with the words of the release that would refuse the result.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tools/run_environment.h"

namespace fragscope::tools {

// Every key of `changes` replaces the same key of `base`; the other keys of `base` keep their order
// and spelling, new keys follow. Commas inside [ ] do not separate.
std::string merge_alloc_conf(std::string_view base, std::string_view changes);

// The settings that torch `version` would read from `environment`. 2.10 and later read
// PYTORCH_CUDA_ALLOC_CONF, else PYTORCH_HIP_ALLOC_CONF, else PYTORCH_ALLOC_CONF; earlier ones the
// first alone. Empty: none.
std::string effective_alloc_conf(const Environment& environment, std::string_view version);

// `changes` merged into the effective settings and accepted by torch `version` ("" = the newest
// known); the value for PYTORCH_CUDA_ALLOC_CONF, which every release reads.
Result<std::string> native_alloc_conf(const Environment& environment, std::string_view changes,
                                      std::string_view version);

// What --max-split-size-mb and --alloc-conf ask for, in one string; the option of its own wins.
std::string requested_alloc_conf(std::optional<uint64_t> max_split_size_mb,
                                 std::string_view alloc_conf);

}  // namespace fragscope::tools
