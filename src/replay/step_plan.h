// What a program does once and what it repeats, and a place for each of its blocks: the maker of
// the plans that src/enforce/plan_follower.h follows.
//
// The step is found in the order of requests alone: a run of requests that repeats exactly, size by
// size and stream by stream. Marks, where there are any, only say where to look. The loop is cut
// where the fewest bytes live across the cut: a block that does live across it has its place to
// itself all the way round.
//
// Blocks of different streams share no memory: a program without a cache of its own must not wait
// for one stream before it gives memory to another.
//
// Units: bytes; positions count requests from 0. Threads: pure functions. Errors: none; a program
// without a step has none.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "replay/call_list.h"

namespace fragscope::replay {

struct ProgramRequest {
  uint64_t bytes = 0;   // rounded up to 512, as device addresses are
  uint32_t stream = 0;  // number in the order of first use
  uint32_t death = 0;   // position of the request before which it had ended
  uint64_t seq = 0;     // of its event; 0 when the list has none
};

// The requests that were served. kNoDeath: the block lived to the end of the recording.
inline constexpr uint32_t kNoDeath = UINT32_MAX;
std::vector<ProgramRequest> requests_of(const CallList& list);

// Requests [start, start + length) are a step that comes `repeats` times in a row.
struct ProgramStep {
  size_t start = 0;
  size_t length = 0;
  size_t repeats = 0;
};

// At least this often in a row, and at least this share of all requests (equal layers repeat too),
// else it is none.
inline constexpr size_t kFewestRepeats = 3;
inline constexpr size_t kLeastShare = 4;  // one in so many

// The repetition that covers most requests; of equal ones the shortest step.
std::optional<ProgramStep> step_by_period(std::span<const ProgramRequest> requests);
// The same, of steps from one mark to another: `marks` are the seqs of one text's marks.
std::optional<ProgramStep> step_by_marks(std::span<const ProgramRequest> requests,
                                         std::span<const uint64_t> marks);

struct StepPlan {
  inline static constexpr uint64_t kNoPlace = UINT64_MAX;

  size_t loop_start = 0;  // number of requests: no loop
  uint64_t arena_bytes = 0;
  uint64_t live_peak = 0;         // of the planned blocks: no plan can need less
  std::vector<uint64_t> offsets;  // of requests 0, 1, …; kNoPlace: lives longer than a step
  std::vector<uint32_t> deaths;   // as planned; beyond the last request: in the next round
};

// Requests up to the end of the loop's first round. Without a step: all of them, once.
StepPlan plan_step(std::span<const ProgramRequest> requests,
                   const std::optional<ProgramStep>& step);

}  // namespace fragscope::replay
