// The rules of a recorded process's allocator: its release and its settings.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/allocator_config.h"
#include "model/version_profile.h"
#include "replay/process_facts.h"

namespace fragscope::replay {

struct Rules {
  model::VersionProfile profile;
  bool assumed = false;  // no known release was named: the newest
  std::string conf;
  model::AllocatorConfig config;
  // Changes while the process ran, by the number that their event has: what holds from then on.
  std::map<uint64_t, model::AllocatorConfig> changes;
};

// kInvalidArgument: settings that the release refuses, PyTorch's text.
Result<Rules> rules_of(const std::optional<std::string>& version, const std::string& conf,
                       model::SplitRule split_rule = model::SplitRule::kReleased);

// The settings that torch of this release took from the recorded process's variables.
std::string recorded_conf(const ProcessFacts& facts, const std::optional<std::string>& version);

// The settings of a changing event (kFlagSettings), as the request named them, by its number.
std::map<uint64_t, std::string> settings_changes(
    const std::map<std::string, std::string>& properties);

// The recorded process's own rules. A setting that its release would have refused cannot have been
// in force: it is left out and said.
Rules recorded_rules(const ProcessFacts& facts, model::SplitRule split_rule,
                     std::vector<std::string>& assumptions);

}  // namespace fragscope::replay
