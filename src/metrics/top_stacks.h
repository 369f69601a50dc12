// Who holds the live bytes?
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "metrics/layout.h"

namespace fragscope::metrics {

struct StackBytes {
  uint32_t stack = kNoStack;  // kNoStack: allocations that were recorded without one
  uint64_t bytes = 0;         // of allocated blocks
  uint64_t blocks = 0;
  uint64_t last_seq = 0;  // newest allocation, for looking addresses up
};

// By allocated bytes, most first; ties: lower stack id first.
std::vector<StackBytes> top_stacks(const Layout& layout, size_t count);

}  // namespace fragscope::metrics
