// Facts of the own process, read with system calls only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fragscope::shim {

// Field 22 of /proc/self/stat; 0 when it cannot be read.
uint64_t start_ticks() noexcept;
// File name of /proc/self/exe, cut to fit, NUL-terminated; "unknown" when it cannot be read.
void program_name(char* out, size_t bytes) noexcept;
// Random, never 0.
uint64_t random_id() noexcept;
uint32_t thread_id() noexcept;
uint64_t monotonic_ns() noexcept;
uint64_t realtime_ns() noexcept;

}  // namespace fragscope::shim
