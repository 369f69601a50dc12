// What `fragscope run` holds a command to: --memory-limit and its kin (src/enforce/limits.h), given
// as options or, as with a plain preload, as variables.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "enforce/limits.h"
#include "tools/run_environment.h"

namespace CLI {
class App;
}

namespace fragscope::tools {

// As given; empty: not given.
struct LimitOptions {
  std::string memory;
  std::string pinned;
  std::string scope;
  std::string oom_at;
  std::string fail_rate;
  std::string warn_at;
  std::string on_oom;
};

void add_limit_options(CLI::App& command, LimitOptions& options);

// The first option given; empty: none was.
std::string first_limit_option(const LimitOptions& options);

// Puts the options into the command's environment and checks all limits that stand there then, the
// user's own variables among them; `notes` (run.json) name what is enforced. Errors:
// kInvalidArgument, naming the option or variable.
Result<enforce::Limits> settle_limits(const LimitOptions& options, Environment& environment,
                                      std::map<std::string, std::string>& notes);

}  // namespace fragscope::tools
