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

// True for names that are in neither list: a driver newer than ours has more to offer.
bool is_unknown_name(const char* name) noexcept;

// A runtime that is linked into a module (nvcc's default) looks its driver functions up by itself.
// Tells one by what only runtimes do: a request without a name before all others. `caller`: return
// address in the module that asks.
void note_request(const char* name, const void* caller) noexcept;
// Calls visit(number, path, context) for each module that carries one.
void for_each_static_runtime(void (*visit)(unsigned number, const char* path, void* context),
                             void* context) noexcept;

// Calls visit(key, count, context) for every counter ("coverage.hooked",
// "coverage.unhooked.<symbol>") that is not 0.
void for_each_coverage(void (*visit)(const char* key, uint64_t count, void* context),
                       void* context) noexcept;
// Sum of all counters, to tell whether anything changed.
uint64_t coverage_total() noexcept;

}  // namespace fragscope::shim
