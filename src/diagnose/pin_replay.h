// What would the recorded allocator have done if one block had never been, or had lain elsewhere?
// The client's calls are replayed so: exact, as every replay.
//
// A block is *moved* in one of two ways that a program can choose; its free stays where it was, and
// so does every other call:
//   first   it is requested before every other request of the recording (blocks that were there
//   when
//           recording began come before it), from the same stream and pool: allocate what lives
//           long before the loop
//   apart   its request is served from a private pool that nothing else uses, at the recorded
//           moment: its segments are shared with no other block (torch.cuda.MemPool)
//
// Units: bytes. Threads: pure functions. Errors: none.
#pragma once

#include <cstdint>
#include <optional>

#include "replay/recorded_process.h"

namespace fragscope::diagnose {

enum class Moved : uint8_t { first, apart };

struct BlockReplay {
  uint64_t ooms = 0;  // refused requests of the whole recording
  uint64_t reserved_peak = 0;
};

// `list` without the block that the event `seq` allocated; absent: there is none, or the list has
// no seqs.
std::optional<replay::CallList> without_block(const replay::CallList& list, uint64_t seq);
// `list` with that block moved; absent: as above, or it was there when recording began.
std::optional<replay::CallList> moved_block(const replay::CallList& list, uint64_t seq,
                                            Moved where);

// Of `process.devices[device]`, under the recorded rules; absent: as above, or no what-if can be
// answered (RecordedProcess::undecidable).
std::optional<BlockReplay> replay_without(const replay::RecordedProcess& process, size_t device,
                                          uint64_t seq);
std::optional<BlockReplay> replay_moved(const replay::RecordedProcess& process, size_t device,
                                        uint64_t seq, Moved where);

}  // namespace fragscope::diagnose
