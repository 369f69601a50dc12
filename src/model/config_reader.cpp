#include "model/config_reader.h"

#include <bit>

#include "model/config_grammar.h"

namespace fragscope::model {

ConfigFailure ConfigReader::add_divisions(const std::string& key, const Result<uint64_t>& megabytes,
                                          uint64_t divisions, size_t rest_from, Divisions& state) {
  auto& table = config_.roundup_power2_divisions;
  if (key == ">") {
    std::fill(table.begin() + static_cast<std::ptrdiff_t>(rest_from), table.end(), divisions);
    return std::nullopt;
  }
  if (!megabytes) return megabytes.error().text;
  if (!std::has_single_bit(megabytes.value())) {
    return "For roundups, the intervals have to be power of 2 ";
  }
  state.last = roundup_entry(megabytes.value());
  if (state.first) std::fill_n(table.begin(), state.last, divisions);
  state.first = false;
  table[state.last] = divisions;
  return std::nullopt;
}

ConfigFailure ConfigReader::choose_backend(const std::string& name) {
  if (name != "native" && name != "cudaMallocAsync") {
    return "Unknown allocator backend, options are native and cudaMallocAsync";
  }
  if (origin_ == ConfigOrigin::kRunTime && name != config_.backend) {
    const std::string text =
        "Allocator backend parsed at runtime != allocator backend parsed at load time";
    if (profile_.grammar == ConfigGrammar::kLexer) return text;
    return text + ", " + name + " != " + config_.backend;
  }
  async_ = name != "native";
  config_.backend = name;
  return std::nullopt;
}

void ConfigReader::warn_of_ignored_options() {
  if (!async_ || !native_) return;
  config_.warnings.emplace_back(
      "backend:cudaMallocAsync ignores max_split_size_mb,roundup_power2_divisions, and "
      "garbage_collect_threshold.");
}

}  // namespace fragscope::model
