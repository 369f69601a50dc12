// Runs a list of allocator commands (model/COMMANDS.md) on the model of one release.
#pragma once

#include <string>

#include "model/command_runner.h"
#include "tests/support/catch.h"

namespace fragscope::model {

// Fails the test if `commands` or `settings` are not in their grammar.
inline ListResult run_list(const std::string& commands, const std::string& version,
                           const std::string& settings = "") {
  const auto list = parse_commands(commands, "list");
  REQUIRE(list.ok());
  const VersionProfile& profile = version_profile(version);
  const auto config = parse_config(settings, profile);
  REQUIRE(config.ok());
  const auto target = make_model_target(list.value(), config.value(), profile,
                                        list.value().capacity.value_or(kDefaultDeviceMemory));
  return run_commands(list.value(), *target);
}

}  // namespace fragscope::model
