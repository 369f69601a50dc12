// Where this program's own parts lie: beside its binary, in the build tree and after an install.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace fragscope::tools {

struct Installation {
  std::string shim;            // lib/libfragscope.so
  std::string sim_directory;   // lib/fragscope/sim
  std::string adaptor_source;  // share/fragscope/torch_adaptor.cpp
};

// Paths relative to /proc/self/exe; nothing is checked.
Installation find_installation();

// kNotFound, naming the file, when the shim is missing or its path cannot stand in LD_PRELOAD
// (which has no quoting: neither spaces nor colons).
Status check_shim(const Installation& installation);
// The same for the stand-ins of the simulated GPU.
Status check_stand_ins(const Installation& installation);

// Full paths of the stand-ins that are preloaded under --gpu. Torch's libraries carry DT_RPATH,
// which wins over LD_LIBRARY_PATH; a library that is loaded already wins over both, by its soname.
std::vector<std::string> preloaded_stand_ins(const Installation& installation);

}  // namespace fragscope::tools
