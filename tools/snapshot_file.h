// A state of the allocator as the file that torch.cuda.memory._dump_snapshot() would have written:
// PyTorch's memory_viz and scripts that read its snapshots take it.
//
// The keys are those of the release whose rules made the state (2.0's had another form: it gets
// 2.1's). Call stacks are the recorded ones; what a release cannot tell in its snapshots (which
// stream used a block, when an event was done) is not there either.
//
// Threads: one at a time. Errors: `out` is bad afterwards.
#pragma once

#include <ostream>

#include "replay/state_at.h"
#include "symbolize/symbolizer.h"
#include "trace/trace_data.h"

namespace fragscope::tools {

void write_snapshot_file(std::ostream& out, const replay::ProcessState& state,
                         const trace::ProcessInfo& process, symbolize::Symbolizer& symbolizer);

}  // namespace fragscope::tools
