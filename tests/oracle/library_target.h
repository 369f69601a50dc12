// The real allocator (libc10_cuda of the torch wheel that this program was compiled against) as the
// target of command lists.
#pragma once

#include <memory>
#include <string>

#include "model/command_runner.h"

namespace fragscope::oracle {

std::unique_ptr<model::CommandTarget> make_library_target(int devices);

// Path and build-id of the libc10_cuda that is mapped here.
struct MappedLibrary {
  std::string path;
  std::string build_id;
};
MappedLibrary mapped_library();

}  // namespace fragscope::oracle
