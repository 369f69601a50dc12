#include "tools/alloc_conf.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "model/allocator_config.h"
#include "model/version_profile.h"

namespace fragscope::tools {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t start = text.find_first_not_of(' ');
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(' ') - start + 1);
}

std::vector<std::string_view> split_settings(std::string_view text) {
  std::vector<std::string_view> settings;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (i < text.size() && (c != ',' || depth > 0)) continue;
    if (!trimmed(text.substr(start, i - start)).empty()) {
      settings.push_back(text.substr(start, i - start));
    }
    start = i + 1;
  }
  return settings;
}

std::string_view key_of(std::string_view setting) {
  return trimmed(setting.substr(0, setting.find(':')));
}

void append(std::string& list, std::string_view setting) {
  if (!list.empty()) list += ',';
  list += setting;
}

}  // namespace

std::string merge_alloc_conf(std::string_view base, std::string_view changes) {
  std::vector<std::string_view> pending = split_settings(changes);
  std::string merged;
  for (const std::string_view setting : split_settings(base)) {
    const auto replaced = [&](std::string_view change) {
      return key_of(change) == key_of(setting);
    };
    if (std::none_of(pending.begin(), pending.end(), replaced)) append(merged, setting);
  }
  for (const std::string_view setting : pending) append(merged, setting);
  return merged;
}

std::string effective_alloc_conf(const Environment& environment, std::string_view version) {
  const auto cuda = get_variable(environment, "PYTORCH_CUDA_ALLOC_CONF");
  if (cuda || !model::version_profile(version).has_generic_variable) return cuda.value_or("");
  const auto hip = get_variable(environment, "PYTORCH_HIP_ALLOC_CONF");
  if (hip) return *hip;
  return get_variable(environment, "PYTORCH_ALLOC_CONF").value_or("");
}

Result<std::string> native_alloc_conf(const Environment& environment, std::string_view changes,
                                      std::string_view version) {
  const model::ProfileMatch match = model::find_version_profile(version);
  std::string merged = merge_alloc_conf(effective_alloc_conf(environment, version), changes);
  const auto parsed = model::parse_config(merged, *match.profile);
  if (!parsed.ok()) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("torch {} does not accept '{}': {}",
                    version.empty() ? match.profile->name : version, merged, parsed.error().text)};
  }
  return merged;
}

std::string requested_alloc_conf(std::optional<uint64_t> max_split_size_mb,
                                 std::string_view alloc_conf) {
  if (!max_split_size_mb) return std::string(alloc_conf);
  return merge_alloc_conf(alloc_conf, fmt::format("max_split_size_mb:{}", *max_split_size_mb));
}

}  // namespace fragscope::tools
