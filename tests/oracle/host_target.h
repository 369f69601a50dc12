// The pinned host allocator of the mapped libtorch_cuda as the target of command lists.
#pragma once

#include <memory>

#include "model/command_runner.h"

namespace fragscope::oracle {

// In the program without libtorch_cuda (tests/oracle/wheels.py) every call answers with an error.
std::unique_ptr<model::HostTarget> make_host_target();

}  // namespace fragscope::oracle
