// Independent pieces of work on several cores.
#pragma once

#include <cstddef>
#include <functional>

namespace fragscope::replay {

// Calls work(0) … work(count - 1), each once, on up to `threads` threads (0: all cores), the
// calling one among them, and returns when all are done. `progress`, if there is one, is called by
// one thread at a time, after each piece, with how many are done. Neither may throw.
void run_in_parallel(size_t count, unsigned threads, const std::function<void(size_t)>& work,
                     const std::function<void(size_t)>& progress = {});

}  // namespace fragscope::replay
