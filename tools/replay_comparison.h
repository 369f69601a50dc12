// `fragscope replay --as` and `--sweep`: the same recorded calls under several allocators and
// settings, side by side.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "replay/sweep.h"
#include "tools/open_run.h"

namespace fragscope::tools {

struct ComparisonOptions {
  std::vector<std::string> as;  // backends, each may be a comma list
  std::string sweep_file;       // empty: none; "-": standard input
  // For backends of `as`; absent: the recorded settings.
  std::optional<std::string> alloc_conf;
  std::optional<std::string> torch_version;  // what "torch" means; absent: the recorded release
  std::optional<uint64_t> device_memory;
  bool json = false;
};

// Prints the table or the JSON document; the command's exit code.
int compare_allocators(OpenRun& run, const ComparisonOptions& options);

}  // namespace fragscope::tools
