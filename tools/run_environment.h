// The environment of the target: the user's own, plus what loads the recorder and the simulated
// GPU. Pure: works on the given list, reads nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/installation.h"

namespace fragscope::tools {

// "NAME=value" strings, as in environ(7).
using Environment = std::vector<std::string>;

std::optional<std::string> get_variable(const Environment& environment, std::string_view name);
void set_variable(Environment& environment, std::string_view name, std::string_view value);
void unset_variable(Environment& environment, std::string_view name);

struct PreloadOptions {
  bool record = true;     // preload the shim
  bool simulate = false;  // preload the stand-ins, look for libcuda.so.1 among them first
  std::vector<std::string> stand_ins;  // full paths
};

// LD_PRELOAD: the shim, what the user preloads (entries of ours are dropped: a nested run), the
// stand-ins. LD_LIBRARY_PATH: the stand-ins' directory before the user's.
// NVTX_INJECTION64_PATH: the shim, unless the user has set it. Everything else of the
// user's is kept as it is; the places where an outer run records (FRAGSCOPE_LOG_DIR, …) are
// dropped.
Environment target_environment(const Environment& user, const Installation& installation,
                               const PreloadOptions& options);

}  // namespace fragscope::tools
