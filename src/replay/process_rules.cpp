#include "replay/process_rules.h"

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

Rules recorded_rules(const ProcessFacts& facts, model::SplitRule split_rule,
                     std::vector<std::string>& assumptions) {
  const auto version = facts.property("torch_version");
  const std::string conf = recorded_conf(facts, version);
  auto rules = rules_of(version, conf, split_rule);
  if (rules) return std::move(rules).value();
  assumptions.push_back("the recorded allocator settings are not used: " + rules.error().text);
  auto plain = rules_of(version, "", split_rule);
  return std::move(plain).value();
}

}  // namespace fragscope::replay
