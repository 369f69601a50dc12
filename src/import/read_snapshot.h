// A file of torch.cuda.memory._dump_snapshot() (or torch::cuda::_memory_snapshot_pickled()) ->
// Snapshot. The pickle is read by a machine that builds plain data only (pickle_machine.h).
//
// Schemas: the list of segments of 1.x and 2.0, and the dictionaries of 2.0 and later; unknown keys
// are ignored. Memory: at most about twice the file. Threads: one at a time.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "import/snapshot_parts.h"
#include "trace/byte_source.h"

namespace fragscope::imported {

// A snapshot has a list for every device up to the last one that was used.
inline constexpr size_t kMostDevices = 4096;

// Does a file that begins so look like a pickle of protocol 2 or later?
bool looks_like_pickle(std::span<const std::byte> start);

// Errors: kDamaged (cut, impossible), kForeign (asks for classes or calls), kNewerVersion
// (protocol), kForeign (plain data, but no snapshot); one line with file and byte. `name` is for
// their text.
Result<Snapshot> read_snapshot(trace::ByteSource source, const std::string& name);

}  // namespace fragscope::imported
