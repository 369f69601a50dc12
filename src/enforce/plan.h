// A plan: where each request of a program goes in one arena, made from a recording of it (fragscope
// plan; PLAN.md has the file's format). First comes what the program does once, then its step,
// which repeats. Whoever reads a plan trusts nothing in it.
//
// Units: bytes. Threads: values. Errors: kInvalidArgument, kForeign, kNewerVersion; the text names
// what is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fragscope::enforce {

inline constexpr uint64_t kPlanVersion = 1;
inline constexpr uint64_t kPlanGranularity = 512;  // of offsets and sizes, as of device addresses
inline constexpr uint64_t kUnplanned = UINT64_MAX;
inline constexpr uint64_t kMaxArenaBytes = uint64_t{1} << 46;

struct PlannedRequest {
  uint64_t size = 0;             // rounded up to kPlanGranularity
  uint64_t offset = kUnplanned;  // in the arena; kUnplanned: expected, but served otherwise
  uint32_t stream = 0;           // number in the order of first use, not a handle
};

struct Plan {
  uint64_t arena_bytes = 0;
  std::vector<PlannedRequest> requests;  // in order
  size_t loop_start = 0;  // after the last one comes this one; requests.size(): nothing does
};

// Nothing reaches out of the arena, offsets are aligned, numbers make sense. Blocks that overlap
// are no error here: who follows a plan looks before it places.
Status check_plan(const Plan& plan);

// The members that a follower needs of a plan file; all others are skipped.
Result<Plan> parse_plan(std::string_view json);

constexpr uint64_t plan_size(uint64_t bytes) {
  const uint64_t rest = bytes % kPlanGranularity;
  if (rest == 0) return bytes == 0 ? kPlanGranularity : bytes;
  const uint64_t more = kPlanGranularity - rest;
  return bytes > UINT64_MAX - more ? bytes - rest : bytes + more;
}

}  // namespace fragscope::enforce
