// Who holds a device's memory at the peak of its allocated bytes, and what for.
//
// Every live block gets one answer to each question, so each table adds up to `live_bytes`.
//
// Steps and phases. Each allocation has an act by its stack (stack_role.h). The phase of the loop
// is the act of the newest allocation that was forward, backward or optimizer; `plain` allocations
// between a forward and the next backward one count as forward (losses), between the end of a step
// and the next forward as `between` (batches). A step ends where forward follows backward or
// optimizer. Before the first forward allocation everything that no rule names is `setup`.
//
// Roles of live blocks:
//   parameters       act apply or init, never freed before the end of the step in which it is used:
//                    weights and buffers (Module._apply moves both)
//   gradients        allocated in a backward pass and outliving it: freed by no thread of the
//                    autograd engine and not before the next phase, or never
//   optimizer_state  allocated by an optimizer, and outliving its step
//   activations      allocated in a forward phase, and gone by the end of the next step
//   inputs           allocated between steps, or before the first one, by the program itself, and
//                    gone by the end of the next step
//   workspace        act workspace
//   temporary        gone within the stretch of one phase that made it
//   unknown          the rest: what a forward pass made and nobody freed, blocks without a stack
//
// Frees after the last allocation belong to the end of the process: they count as none, but for
// those of the autograd engine's threads.
//
// Lifetimes: `step` (gone by the end of the step after the one it was made in), `steps` (later),
// `run` (never freed in the recording).
//
// Units: bytes. Threads: one at a time. What the recording does not tell is absent.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "diagnose/stack_role.h"
#include "metrics/process_metrics.h"
#include "replay/event_stream.h"
#include "replay/process_facts.h"

namespace fragscope::diagnose {

enum class LoopPhase : uint8_t { setup, between, forward, backward, optimizer };
enum class TensorRole : uint8_t {
  parameters,
  gradients,
  optimizer_state,
  activations,
  inputs,
  workspace,
  temporary,
  unknown,
};
enum class Lifetime : uint8_t { step, steps, run };
inline constexpr size_t kLoopPhases = 5;
inline constexpr size_t kTensorRoles = 8;
inline constexpr size_t kLifetimes = 3;
std::string_view phase_name(LoopPhase phase);
std::string_view role_name(TensorRole role);
std::string_view lifetime_name(Lifetime lifetime);

struct Share {
  uint64_t bytes = 0;
  uint64_t blocks = 0;

  void add(uint64_t more) {
    bytes += more;
    ++blocks;
  }
};

// Blocks of one call stack, module, range …; lists of these are most bytes first.
struct StackShare : Share {
  uint32_t stack = kNoStack;
  uint64_t seq = 0;  // of an allocation, for looking addresses up
  TensorRole role = TensorRole::unknown;
  LoopPhase phase = LoopPhase::setup;
};
struct NamedShare : Share {
  std::string name;  // empty: none
  std::string file;  // of modules
  int line = 0;
};

// Device memory of the process that is not in segments, by who asked CUDA for it.
struct OutsideShare : Share {
  std::string library;  // "libcublas", "the program", "CUDA"
};

// What one stack allocated over the whole run.
struct Churn : Share {
  uint32_t stack = kNoStack;
  uint64_t seq = 0;
};

// A stack that left blocks behind in most steps. Where nothing is trained: forward stacks that did
// so in most calls of the model.
struct GrowthSuspect : Share {
  uint32_t stack = kNoStack;
  uint64_t seq = 0;
  uint64_t steps = 0;  // in which it did
};

struct Growth {
  uint64_t steps = 0;  // that ended, without the first two (they warm up)
  // Live bytes at the ends of those steps: of the first and the last, and the median change.
  uint64_t first_bytes = 0;
  uint64_t last_bytes = 0;
  int64_t median_change = 0;
  bool trained = true;  // false: there are no steps, the suspects are of calls of the model
  // false: the run is too short for the rule above, but each of its steps left blocks of these
  // stacks behind and ended with more than the one before it.
  bool sure = true;
  uint64_t suspect_bytes = 0;  // of all suspects, listed or not
  std::vector<GrowthSuspect> suspects;
};

struct Attribution {
  int32_t device = 0;
  std::string moment = "the peak";  // in words
  uint64_t seq = 0;                 // the moment: after this event
  uint64_t time_ns = 0;             // CLOCK_MONOTONIC
  uint64_t live_bytes = 0;
  uint64_t requested_bytes = 0;            // of it; the rest is rounding
  bool requests_known = true;              // false: the source tells no requested sizes
  std::optional<uint64_t> reserved_bytes;  // segments then
  std::optional<uint64_t> driver_bytes;    // of this process, by CUDA's calls
  std::optional<uint64_t> context_bytes;
  std::vector<OutsideShare> outside;  // adds up to driver_bytes - reserved_bytes
  std::array<Share, kTensorRoles> roles;
  std::array<Share, kLoopPhases> phases;
  std::array<Share, kLifetimes> lifetimes;
  std::vector<StackShare> stacks;
  std::vector<NamedShare> modules;       // without a name: no frame of a forward
  std::vector<NamedShare> ranges;        // innermost NVTX range that was open; without a name: none
  std::vector<NamedShare> outer_ranges;  // the outermost
  std::vector<StackShare> rounding;      // bytes: block size less requested size, by stack
  // Parts of roles that remedies ask for (memory_remedies.h).
  uint64_t activations_in_modules = 0;      // made by the forward of some module
  uint64_t optimizer_temporaries = 0;       // made by the optimizer's step
  uint64_t gradients_of_earlier_steps = 0;  // made before the step of the peak
  uint64_t steps = 0;                       // of the whole run
  std::vector<uint64_t> step_seqs;          // first event of each step but the first
  std::vector<uint64_t> step_times_ns;      // … and its CLOCK_MONOTONIC
  Growth growth;
  uint64_t allocations = 0;      // of the whole run
  uint64_t allocated_bytes = 0;  // sum of all blocks of the run
  std::vector<Churn> churn;      // by bytes
};

// One for each device with blocks, at `at_peak` of `measured`, which is of the same events; who
// wants another moment puts it there (metrics::moments_at).
std::vector<Attribution> attribute(replay::EventStream& events,
                                   const metrics::ProcessMetrics& measured, StackRoles& roles,
                                   const std::unordered_map<uint32_t, std::string>& texts);

}  // namespace fragscope::diagnose
