// Findings of a recorded run as text for people.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "diagnose/trace_verdict.h"

namespace fragscope::diagnose {

// One setting, replayed over the recording.
struct Trial {
  std::string settings;  // PyTorch's key:value,…
  uint64_t ooms = 0;     // requests that are refused with it
  uint64_t reserved_peak = 0;
  uint64_t segment_calls = 0;
};

// A call stack in lines, innermost frame first; no lines: unknown.
using StackLines = std::function<std::vector<std::string>(uint32_t stack, uint64_t seq)>;

// The actions for a message become those for a recording: for fragmentation the first one is what
// the trials showed, the next one a block that is enough to move, and nobody is told to record.
void adapt_actions(const std::vector<Trial>& trials, TraceFinding& finding);

// Several lines, the last one ended. Texts of the recording are made printable.
std::string finding_text(const TraceFinding& finding, const std::vector<Trial>& trials,
                         const StackLines& stack_lines);

}  // namespace fragscope::diagnose
