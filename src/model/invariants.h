// Checks of the allocator's whole state, for tests: slow, touches every block.
#pragma once

#include <string>

#include "model/caching_allocator.h"

namespace fragscope::model {

// Empty when everything holds, else one sentence about the first broken invariant:
// neighbours are contiguous and linked both ways, free blocks never lie side by side, every block
// is in exactly one of free set, unmapped set, active; every level in stats()
// equals a recount.
std::string check_invariants(const CachingAllocator& allocator);

}  // namespace fragscope::model
