// Which release wrote a recording that does not say it? Snapshots name none: their keys bound it
// (snapshot.torch_oldest, snapshot.torch_newest), and of the releases between the one is taken
// whose rules predict the recorded addresses best.
//
// Threads: one at a time. Errors: none.
#pragma once

#include "replay/event_stream.h"
#include "replay/process_facts.h"

namespace fragscope::replay {

inline constexpr const char* kReleaseNote = "replay.release_note";

// Of a process whose release is not named: sets torch_version to the one that fits best, alloc_conf
// to the settings under which it does, kReleaseNote to a sentence that says how it was found, and
// start_choices where that explains more.
// Any other process stays as it is.
void settle_release(EventStream& events, ProcessFacts& facts);

}  // namespace fragscope::replay
