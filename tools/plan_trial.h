// How a plan would have served the recorded requests: the allocator that enforces it
// (src/enforce/served_allocator.h), on a device that only counts.
//
// Units: bytes. Threads: pure. Errors: none.
#pragma once

#include "enforce/plan_follower.h"
#include "replay/call_list.h"

namespace fragscope::tools {

struct PlanTrial {
  uint64_t peak_reserved = 0;
  uint64_t peak_allocated = 0;
  uint64_t requests = 0;
  uint64_t placed = 0;  // by the plan; the cache served the others
};

PlanTrial try_plan(const enforce::Plan& plan, const replay::CallList& list);

}  // namespace fragscope::tools
