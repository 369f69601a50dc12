#include "replay/process_rules.h"

#include <charconv>
#include <string_view>
#include <utility>

namespace fragscope::replay {

Result<Rules> rules_of(const std::optional<std::string>& version, const std::string& conf,
                       model::SplitRule split_rule) {
  Rules rules;
  const model::ProfileMatch match = model::find_version_profile(version.value_or(""));
  rules.profile = *match.profile;
  rules.profile.split_rule = split_rule;
  rules.assumed = !match.exact;
  rules.conf = conf;
  auto config = model::parse_config(conf, rules.profile);
  if (!config) return config.error();
  rules.config = std::move(config).value();
  return rules;
}

std::string recorded_conf(const ProcessFacts& facts, const std::optional<std::string>& version) {
  if (const auto conf = facts.property("alloc_conf")) return *conf;
  const model::ProfileMatch match = model::find_version_profile(version.value_or(""));
  if (!match.profile->has_generic_variable) return {};
  return facts.property("alloc_conf.generic").value_or("");
}

std::map<uint64_t, std::string> settings_changes(
    const std::map<std::string, std::string>& properties) {
  constexpr std::string_view kPrefix = "alloc_conf.change.";
  std::map<uint64_t, std::string> changes;
  for (auto at = properties.lower_bound(std::string(kPrefix));
       at != properties.end() && at->first.starts_with(kPrefix); ++at) {
    uint64_t number = 0;
    const char* const end = at->first.data() + at->first.size();
    const auto read = std::from_chars(at->first.data() + kPrefix.size(), end, number);
    if (read.ec == std::errc() && read.ptr == end) changes[number] = at->second;
  }
  return changes;
}

namespace {

// An option that a change does not name keeps its value.
void read_changes(const ProcessFacts& facts, Rules& rules, std::vector<std::string>& assumptions) {
  model::AllocatorConfig config = rules.config;
  for (const auto& [number, text] : settings_changes(facts.properties)) {
    auto changed = model::parse_config(text, rules.profile, config);
    if (!changed) {
      assumptions.push_back("settings that were changed while the process ran are not followed: " +
                            changed.error().text);
      continue;
    }
    config = std::move(changed).value();
    rules.changes[number] = config;
  }
}

}  // namespace

Rules recorded_rules(const ProcessFacts& facts, model::SplitRule split_rule,
                     std::vector<std::string>& assumptions) {
  const auto version = facts.property("torch_version");
  const std::string conf = recorded_conf(facts, version);
  auto rules = rules_of(version, conf, split_rule);
  if (rules) {
    read_changes(facts, *rules, assumptions);
    return std::move(rules).value();
  }
  assumptions.push_back("the recorded allocator settings are not used: " + rules.error().text);
  auto plain = rules_of(version, "", split_rule);
  return std::move(plain).value();
}

}  // namespace fragscope::replay
