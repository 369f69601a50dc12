// What a snapshot leaves open, in sentences: from the facts that its import found (the snapshot.*
// keys of src/trace/FORMAT.md).
#pragma once

#include <string>
#include <vector>

#include "replay/process_facts.h"

namespace fragscope::replay {

// Empty for every other source.
std::vector<std::string> snapshot_notes(const ProcessFacts& facts);

}  // namespace fragscope::replay
