// Failures as PyTorch raises them. PyTorch does not look at what a pluggable allocator returns, so
// a failed allocation has to leave by PyTorch's own exception, thrown by the host's C++ runtime.
//
// Compiled without exceptions: the host's unwinder passes frames without a personality routine.
// Returns (having done nothing) only in a process without PyTorch.
#pragma once

namespace fragscope::alloc {

void raise_out_of_memory(const char* text);
void raise_error(const char* text);

}  // namespace fragscope::alloc
