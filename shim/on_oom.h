// What happens when a request for memory fails (FRAGSCOPE_ON_OOM): the record of it is in the trace
// file before the program learns of it, then the chosen action follows. src/enforce/CAPS.md.
//
// A request fails for PyTorch when its allocator gives up (after it has released what it cached and
// tried again), for other programs when CUDA refuses device memory.
//
// Threads: any; the calling one waits for the collector, at most kMostWait. Not an observer, and
// does nothing unless it is asked for.
#pragma once

#include "event/event.h"
#include "shim/session.h"

namespace fragscope::shim {

// An allocator above CUDA tells its blocks, and will tell when it gives up (fragscope_api.h).
void note_allocator_above() noexcept;

// Acts if the event, which has just been logged, is such a failure.
void act_on_oom(Session& session, const Event& event) noexcept;

// The only events that it can be.
inline bool may_be_oom(const Event& event) {
  constexpr int kOutOfMemory = 2;  // cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY
  return event.kind == EventKind::oom || event.result == kOutOfMemory;
}

}  // namespace fragscope::shim
