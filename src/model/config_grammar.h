// The two grammars of the settings string; allocator_config.cpp chooses by release. Both apply the
// options to `config` one by one and stop at the first error.
#pragma once

#include <string_view>

#include "model/allocator_config.h"
#include "model/config_numbers.h"

namespace fragscope::model {

// 2.0 … 2.9
ConfigFailure parse_with_lexer(std::string_view text, const VersionProfile& profile,
                               ConfigOrigin origin, AllocatorConfig& config);
// 2.10 on
ConfigFailure parse_with_tokenizer(std::string_view text, const VersionProfile& profile,
                                   ConfigOrigin origin, AllocatorConfig& config);

// Entry of the roundup table for a list key in MiB, a power of two.
size_t roundup_entry(uint64_t key);

}  // namespace fragscope::model
