#include "model/allocator_config.h"

#include <algorithm>
#include <bit>

#include "model/config_grammar.h"

namespace fragscope::model {

size_t roundup_entry(uint64_t key) {
  const auto log2 = static_cast<size_t>(63 - std::countl_zero(key));
  return std::min(log2, kRoundupEntries - 1);
}

Status apply_config(std::string_view text, const VersionProfile& profile, ConfigOrigin origin,
                    AllocatorConfig& config) {
  config.text = text;
  config.warnings.clear();
  config.max_split_size = kUnlimitedSplit;
  config.roundup_power2_divisions.fill(0);
  config.garbage_collection_threshold = 0;
  const ConfigFailure failure = profile.grammar == ConfigGrammar::kLexer
                                    ? parse_with_lexer(text, profile, origin, config)
                                    : parse_with_tokenizer(text, profile, origin, config);
  if (failure) return Error{ErrorCode::kInvalidArgument, *failure};
  return Done{};
}

Result<AllocatorConfig> parse_config(std::string_view text, const VersionProfile& profile,
                                     const AllocatorConfig& previous, ConfigOrigin origin) {
  AllocatorConfig config = previous;
  const Status status = apply_config(text, profile, origin, config);
  if (!status) return status.error();
  return config;
}

}  // namespace fragscope::model
