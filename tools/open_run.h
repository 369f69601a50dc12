// Opens whatever can be read as a run: a run.fsr directory (sealed, live, or left by a killed
// collector), one trace file (.fst), one log (.fslog), a text trace, or a snapshot that PyTorch
// wrote
// (.pickle).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "trace/host_memory.h"
#include "trace/run_directory.h"
#include "trace/trace_reader.h"

namespace fragscope::tools {

struct OpenRun {
  std::string path;
  std::optional<trace::RunInfo> info;  // absent: not a run directory, or its run.json is unusable
  std::vector<trace::TraceReader> processes;  // in the order of their start
  std::optional<trace::HostMemory> host;      // absent: nobody looked at it
  // What is wrong and did not prevent reading; each is one line and names the file. Damage that
  // only shows while events are read is in each reader's damage().
  std::vector<std::string> warnings;
};

// Errors: kNotFound, kPermission, kForeign, kNewerVersion, kDamaged: nothing in `path` can be read.
// A run directory with some readable files is no error; a run without processes is none either.
Result<OpenRun> open_run(const std::string& path);

// What of a process's events is not in its trace, and so in no figure; a line each.
std::vector<std::string> losses_of(const trace::ProcessInfo& process);

// The warnings and, if the readers have been read, their damage.
std::vector<std::string> all_warnings(const OpenRun& run);

// Once `events` have been read: prints the warnings on stderr. kExitOk; kExitNothingRecorded, of
// which the caller tells; kExitInput, and the line that says so, when damage left nothing.
int reading_exit_code(const OpenRun& run, uint64_t events);

}  // namespace fragscope::tools
