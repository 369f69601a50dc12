// A snapshot as the trace of one process (bytes of src/trace/FORMAT.md, sealed), so that everything
// that reads traces reads snapshots:
//
// - first, flagged kFlagAtStart, the segments and blocks that were there when recording began, as
//   segment_alloc/segment_map, alloc and (pending ones) free_requested;
// - then the entries of all devices, merged by time, each device's in their own order;
// - annotations as range_push and range_pop.
//
// Times count from the first entry. The pid is 0 (not in a snapshot), threads are not known, frames
// are known by name. Sizes of blocks that were freed again are not in a snapshot and stay unknown.
// Properties: block_source=snapshot and those of FORMAT.md's table that begin with `snapshot.`.
//
// Threads: one at a time. Errors: those of trace::TraceWriter.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "import/snapshot_parts.h"
#include "trace/trace_reader.h"

namespace fragscope::imported {

// Gives pools to the entries on the way.
Result<std::vector<std::byte>> snapshot_to_trace(Snapshot& snapshot, const std::string& program);

// The file as an opened trace. Errors: those of read_snapshot().
Result<trace::TraceReader> open_snapshot(const std::string& path);

}  // namespace fragscope::imported
