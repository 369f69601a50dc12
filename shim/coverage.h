// What the hooks cover: counts of look-ups that were answered with a wrapper or passed through.
//
// Threads: any; lock-free. Counting starts before there is a session (session.h logs the counts).
#pragma once

#include <cstdint>

namespace fragscope::shim {

void count_hooked() noexcept;
// `symbol` is copied; names beyond a fixed number of different ones are counted together.
void count_unhooked(const char* symbol) noexcept;

// True for names in intercepts.def's NOT_HOOKED rows (also with a version or stream suffix).
bool is_known_unhooked(const char* name) noexcept;

// Calls visit(key, count, context) for every counter ("coverage.hooked",
// "coverage.unhooked.<symbol>") that is not 0.
void for_each_coverage(void (*visit)(const char* key, uint64_t count, void* context),
                       void* context) noexcept;
// Sum of all counters, to tell whether anything changed.
uint64_t coverage_total() noexcept;

}  // namespace fragscope::shim
