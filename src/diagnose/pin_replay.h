// What would the recorded allocator have done if one block had never been? The client's calls are
// replayed without it: exact, as every replay.
//
// Units: bytes. Threads: pure functions. Errors: none.
#pragma once

#include <cstdint>
#include <optional>

#include "replay/recorded_process.h"

namespace fragscope::diagnose {

struct WithoutBlock {
  uint64_t ooms = 0;  // refused requests of the whole recording
  uint64_t reserved_peak = 0;
};

// `list` without the block that the event `seq` allocated; absent: there is none, or the list has
// no seqs.
std::optional<replay::CallList> without_block(const replay::CallList& list, uint64_t seq);

// Of `process.devices[device]`, under the recorded rules; absent: as above, or no what-if can be
// answered (RecordedProcess::undecidable).
std::optional<WithoutBlock> replay_without(const replay::RecordedProcess& process, size_t device,
                                           uint64_t seq);

}  // namespace fragscope::diagnose
