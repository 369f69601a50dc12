// Which allocator settings suit a recorded run best: a search by exact replay.
//
// The grid is built from what the run's release accepts, without combinations that are known to
// break (expandable segments with a split limit up to 2.4: an internal assertion fails).
// garbage_collection_threshold is left out: it frees what a failed request would have freed anyway,
// only earlier. Every setting runs over the whole list of calls; lists so long that this would take
// minutes are searched by successive halving: all settings on the first quarter, the better half on
// the first half, the best quarter on everything, always with the default and the recorded
// settings; then, from the best few, every setting that differs in one option, as long as that
// finds a better one.
//
// A setting is advised only if it is better than the default on the whole run and not worse on the
// run without its last step and without its last two (where no steps are known: cut at 97 % and at
// 90 % of its calls): advice must not hang on where the recording ended. One that lets a refused
// request pass may hold more before it, if it refuses no other there.
//
// Units: bytes. Threads: advise() starts its own and joins them. Errors: none; a process that no
// what-if can answer must not be passed (RecordedProcess::undecidable).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/version_profile.h"
#include "replay/recorded_process.h"

namespace fragscope::diagnose {

enum class Objective : uint8_t {
  peak,     // least reserved at the peak
  fits,     // least reserved, on a device of the given size
  mallocs,  // fewest calls for device memory
};

struct AdviceSettings {
  Objective objective = Objective::peak;
  std::optional<uint64_t> device_bytes;  // what the allocator may get; absent: as recorded
  unsigned threads = 0;                  // 0: all cores
  // First event of each step of the recorded loop but the first; the call lists then have seqs.
  // Empty: unknown.
  std::vector<uint64_t> step_seqs;
  // Calls times settings up to which every setting runs over the whole list; about half a minute
  // on two cores.
  uint64_t exhaustive_work = 600'000'000;
};

struct TriedSettings {
  std::string settings;  // PyTorch's key:value,…; empty: the default
  uint64_t ooms = 0;
  uint64_t reserved_peak = 0;
  uint64_t segment_calls = 0;    // cudaMalloc and cudaFree, or pages mapped and unmapped
  uint64_t retries = 0;          // flushes of the cache
  size_t options = 0;            // how many settings there are
  bool on_pareto_front = false;  // nothing else has both less reserved and fewer calls
};

// What lives at the peak, by what becomes of it within the recording.
struct PeakShares {
  uint64_t kept = 0;      // to the end: weights, optimizer state, or a leak
  uint64_t returned = 0;  // freed later: activations, gradients, workspaces
};

struct Advice {
  TriedSettings default_settings;
  TriedSettings recorded_settings;
  std::vector<TriedSettings> tried;   // on the whole run, best first, with the two above
  std::optional<TriedSettings> best;  // absent: nothing is better than the default
  uint64_t live_peak = 0;             // no allocator can need less
  uint64_t plan_peak = 0;             // what an offline plan of all lifetimes needs
  uint64_t unlimited_peak = 0;        // reserved with `best`, or the default, on an endless device
  PeakShares shares;
  // The last request of the recording was refused there: what the program would have asked for
  // after it is in no replay.
  bool ends_at_refusal = false;
  size_t searched = 0;     // settings that were tried at all
  bool exhaustive = true;  // … all of them on the whole run
};

// The settings that are tried, the default ("") first.
std::vector<std::string> settings_grid(const model::VersionProfile& profile);

Advice advise(const replay::RecordedProcess& process, size_t device, const AdviceSettings& settings,
              const std::function<void(size_t done, size_t total)>& progress = {});

// True if `left` is better for the objective. OOMs first; then less is better only by more than
// 0.5 %, so that small gains do not cost options or calls.
bool better(const TriedSettings& left, const TriedSettings& right, Objective objective);

}  // namespace fragscope::diagnose
