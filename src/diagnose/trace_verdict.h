// A scene of a recorded run -> why memory was refused, with every byte of the device accounted for.
//
// The same vocabulary as for messages (verdict.h); `cause` is finer. Arithmetic, with s = the
// request as the allocator rounds it, a = the segment it would have asked for, F = what the device
// had left, R = segments held, A = active bytes in them:
//   A + s > R + F   live data and the request do not fit into what the allocator has or could get:
//                   capacity, unless what is held outside it (this process's other calls, other
//                   processes) or a leak is at least as large as what is missing
//   A + s >= 94 % of R + F   as good as full: capacity (or a leak), fragmentation beside it
//   F >= a          the device had room: a limit refused (memory fraction). Where F is not
//                   recorded: only if CUDA itself refused nothing; if it did refuse, unknown
//   a free block of the right stream and pool was large enough: missed retry (PyTorch does not look
//                   again after it has synchronised)
//   live + s <= R + F < A + s   stranded by pending events: freed blocks that other streams use
//   otherwise       stranded: enough is free, in pieces; the largest kind of piece is named
//
// Units: bytes. Threads: pure functions. What the trace does not tell is absent, and then so is the
// conclusion from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/attribution.h"
#include "diagnose/memory_split.h"
#include "diagnose/pin_replay.h"
#include "diagnose/verdict.h"
#include "metrics/gaps.h"
#include "metrics/pinning.h"
#include "metrics/scenes.h"
#include "replay/process_facts.h"

namespace fragscope::diagnose {

enum class Cause : uint8_t {
  none,  // nothing was refused: a peak
  capacity,
  fraction,
  missed_retry,
  stranded,
  outside_pytorch,
  other_process,
  pinned,
  leak,
  unknown,
  on_purpose,  // --oom-at, --fail-rate: CUDA was not even asked
};
std::string_view cause_name(Cause cause);

// What the block's end or another place for it would give back, by address arithmetic in the scene.
struct PinGain {
  metrics::LayoutBlock block;
  uint64_t gap = 0;         // the free stretch that would be there
  uint64_t releasable = 0;  // the segment's size if nothing else lives in it, else 0
  // The recording without the block, and with it moved (pin_replay.h).
  std::optional<BlockReplay> without = std::nullopt;
  std::optional<BlockReplay> moved_first = std::nullopt;
  std::optional<BlockReplay> moved_apart = std::nullopt;
};

struct LeakSuspect {
  uint32_t stack = kNoStack;
  uint64_t bytes = 0;
  uint64_t blocks = 0;
  uint64_t windows = 0;  // of Survivors::kWindows in which it left blocks; 0: told by `steps`
  uint64_t steps = 0;    // of the loop, or calls of the model, in which it did; 0: told by windows
};

struct TraceFinding {
  metrics::Scene scene;
  MessageScan figures;  // the scene's figures as a message would print them
  Explanation explanation;
  Cause cause = Cause::unknown;
  std::optional<Stranded> stranded_in;  // cause stranded: in what most of the free bytes were
  MemorySplit split;
  std::vector<metrics::Gap> gaps;  // largest first
  std::vector<PinGain> pins;       // what gives back most, first
  std::vector<LeakSuspect> leaks;
};

// `growth`: of the same device up to the scene, where it is known: what every step of the loop left
// behind is a leak, also where nothing else ever falls.
TraceFinding judge(const metrics::Scene& scene, const replay::ProcessFacts& facts,
                   replay::BlockSource source, const Growth* growth = nullptr);

}  // namespace fragscope::diagnose
