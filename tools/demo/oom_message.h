// PyTorch's out-of-memory message, word by word (release 2.11 and later), from the allocator's
// facts. The part on other processes needs NVML and is left out, as PyTorch does without NVML.
#pragma once

#include <string>

#include "model/caching_allocator.h"

namespace fragscope::demo {

std::string oom_message(const model::OomFacts& facts, int device);

}  // namespace fragscope::demo
