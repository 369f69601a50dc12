// Settings of the simulated GPU on the command line, and what a run relied on that is not exact.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "simcuda/ledger.h"
#include "simcuda/sim_config.h"
#include "tools/run_options.h"

namespace fragscope::tools {

// Options that make sense with --gpu alone; empty: none was given.
std::string first_simulation_option(const RunOptions& options);

// Applies --sim-answers, --sim-script, --sim-kernel-us and --gpu-used; `used_bytes` receives the
// latter's bytes (0: none).
Status apply_simulation_options(const RunOptions& options, simcuda::SimConfig& gpu,
                                uint64_t& used_bytes);

// Notes of run.json that bound what other convolution workspaces would have changed, in bytes: the
// largest one that was assumed, and the room that others could need.
inline constexpr const char* kWorkspaceNote = "assumed.workspace_bytes";
inline constexpr const char* kWorkspaceRoomNote = "assumed.workspace_room_bytes";

// Notes of run.json, key and text: unsupported calls, answered values, assumed sizes, the two
// above; only those that there were.
std::vector<std::pair<std::string, std::string>> simulation_notes(simcuda::Ledger& ledger);

// For a command that failed: that it read zeros where kernels would have left values; empty: it did
// not.
std::string zeros_it_read(simcuda::Ledger& ledger);

}  // namespace fragscope::tools
