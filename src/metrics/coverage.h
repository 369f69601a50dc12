// What did the recorder see of the process, and what passed it by? From the trace's properties.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "replay/process_facts.h"

namespace fragscope::metrics {

struct Coverage {
  std::optional<uint64_t> hooked;            // entry points answered with a hook
  std::map<std::string, uint64_t> unhooked;  // symbol -> requests that passed through
  std::vector<std::string> cudart;           // copies of the runtime in the process
  std::vector<std::string> static_cudart;    // modules that carry one inside
  std::map<std::string, uint64_t> calls;     // entry point -> calls; empty: not known
  std::optional<std::string> stacks;         // "native", "none"
};

Coverage coverage_of(const replay::ProcessFacts& facts);

}  // namespace fragscope::metrics
