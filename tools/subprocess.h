// Short helper programs (a compiler, a Python that is asked one question): started, waited for,
// their output collected.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "tools/run_environment.h"

namespace fragscope::tools {

struct Finished {
  int exit_code = 0;  // 128 + n for a signal
  std::string out;
  std::string err;
};

// Standard input is /dev/null. argv[0] is looked up in PATH. Errors: kNotFound when it cannot be
// started, kInternal when the system refuses.
Result<Finished> run_helper(const std::vector<std::string>& argv, const Environment& environment);

// The environment of this process, without what is preloaded into it.
Environment own_environment();
Environment helper_environment();

}  // namespace fragscope::tools
