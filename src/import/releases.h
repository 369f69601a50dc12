// Which releases of PyTorch can have written a snapshot, by the keys that it has.
#pragma once

#include <optional>
#include <string>

#include "import/snapshot_parts.h"

namespace fragscope::imported {

// Minor numbers of release 2.x, both included.
struct ReleaseRange {
  int oldest = 0;
  int newest = 99;  // no key tells an upper bound
};

ReleaseRange releases_of(const Snapshot& snapshot);

// The allocator's settings in PyTorch's grammar, or "" for the defaults; nothing: the file has
// none.
std::optional<std::string> settings_text(const Snapshot& snapshot);

}  // namespace fragscope::imported
