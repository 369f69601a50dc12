// PyTorch's out-of-memory texts, release by release (without the list of processes, which the model
// cannot know). One line, no exception prefix.
// Source of facts: DeviceCachingAllocator::malloc and format_size of the releases.
#pragma once

#include <string>

#include "model/caching_allocator.h"

namespace fragscope::model {

std::string oom_message(const OomFacts& facts, const VersionProfile& profile,
                        const AllocatorConfig& config, int device);

// throw_on_cudamalloc_oom
std::string rejection_message(const OomFacts& facts);

// set_per_process_memory_fraction outside [0, 1]
std::string fraction_error(double fraction);

}  // namespace fragscope::model
