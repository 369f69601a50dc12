#include "model/version_profile.h"

#include <array>
#include <charconv>
#include <string>

namespace fragscope::model {
namespace {

constexpr int kNewestMinor = 15;
constexpr std::array<std::string_view, kNewestMinor + 1> kNames = {
    "2.0", "2.1", "2.2",  "2.3",  "2.4",  "2.5",  "2.6",  "2.7",
    "2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15"};

constexpr TieRule tie_rule(int minor) {
  if (minor < 12) return TieRule::kAddress;
  return minor == 12 ? TieRule::kBlockNumber : TieRule::kSegmentNumber;
}

constexpr FallbackRule fallback_rule(int minor) {
  if (minor < 8) return FallbackRule::kNone;
  return minor < 11 ? FallbackRule::kAfterFlush : FallbackRule::kBeforeRelease;
}

constexpr void set_host_rules(VersionProfile& p) {
  p.host_search = p.minor < 5    ? HostSearch::kSmallestThatFits
                  : p.minor < 14 ? HostSearch::kNewestOfBucket
                                 : HostSearch::kNewestThatFits;
  p.host_background = p.minor < 6    ? HostBackground::kNone
                      : p.minor < 10 ? HostBackground::kAsksPending
                                     : HostBackground::kStartsThread;
  p.host_stats = p.minor < 8    ? HostStatsForm::kNone
                 : p.minor < 10 ? HostStatsForm::kSegments
                                : HostStatsForm::kActive;
  p.host_free_counts = p.minor < 10 || p.minor > 12;
  p.host_event_counts_size = p.minor > 12;
  p.has_host_pools = p.minor >= 12;
  p.host_pool_buckets = p.minor >= 15;
  p.host_flush_ends_events = p.minor == 12 || p.minor >= 15;
}

constexpr VersionProfile make_profile(int minor) {
  VersionProfile p;
  p.name = kNames[static_cast<size_t>(minor)];
  p.minor = minor;
  p.tie = tie_rule(minor);
  p.grammar = minor < 10 ? ConfigGrammar::kLexer : ConfigGrammar::kTokenizer;
  p.one_division_keeps_size = minor < 4;
  p.roundup_zero_in_list = minor >= 4;
  p.has_expandable = minor >= 1;
  p.has_register_options = minor >= 2;
  p.has_background_threads = minor >= 6;
  p.has_non_split_rounding = minor >= 6;
  p.has_capture_reuse = minor >= 9;
  p.has_large_segment_size = minor >= 11;
  p.has_throw_on_oom = minor >= 12;
  p.has_pinned_limits = minor >= 13;
  p.has_expandable_reserve = minor >= 15;
  p.has_generic_variable = minor >= 10;
  p.exclusive_minimum = minor < 10;
  p.full_fraction_is_unset = minor >= 10;
  p.expandable_in_private_pools = minor >= 5;
  p.expandable_split_by_option = minor < 10;
  p.range_holds_request = minor >= 15;
  p.expandable_release_asserts = minor < 5;
  p.scope = minor < 13 ? ScopeRule::kAnyScopeBlocks : ScopeRule::kOnlyCaptureBlocks;
  p.scoped_empty_cache =
      minor < 8 ? ScopedEmptyCache::kAssertion : ScopedEmptyCache::kFreeablePools;
  p.newest_scope_first = minor >= 10;
  p.scope_by_stream = minor < 3;
  p.scope_drops_uses = minor >= 4;
  p.checkpoint_records_events = minor >= 4;
  p.fallback = fallback_rule(minor);
  p.has_no_split_pools = minor >= 10;
  p.has_device_alloc_counters = minor >= 3;
  p.has_rejection_counter = minor >= 12;
  p.has_private_pool_bytes = minor >= 13;
  set_host_rules(p);
  return p;
}

constexpr auto kProfiles = [] {
  std::array<VersionProfile, kNewestMinor + 1> table;
  for (int minor = 0; minor <= kNewestMinor; ++minor) {
    table[static_cast<size_t>(minor)] = make_profile(minor);
  }
  return table;
}();

}  // namespace

std::span<const VersionProfile> version_profiles() { return kProfiles; }

ProfileMatch find_version_profile(std::string_view text) {
  const ProfileMatch newest{&kProfiles.back(), false};
  constexpr std::string_view kMajor = "2.";
  if (!text.starts_with(kMajor)) return newest;
  text.remove_prefix(kMajor.size());
  int minor{};
  const auto [end, error] = std::from_chars(text.begin(), text.end(), minor);
  if (error != std::errc{} || minor < 0 || minor > kNewestMinor) return newest;
  if (end != text.end() && *end != '.' && *end != '+' && *end != 'a' && *end != 'r') return newest;
  return {&kProfiles[static_cast<size_t>(minor)], true};
}

Result<ProfileMatch> asked_version_profile(std::string_view text) {
  const ProfileMatch match = find_version_profile(text);
  if (match.exact) return match;
  int major{};
  const auto [end, error] = std::from_chars(text.begin(), text.end(), major);
  int minor{};
  const bool has_minor = error == std::errc{} && end != text.end() && *end == '.' &&
                         std::from_chars(end + 1, text.end(), minor).ec == std::errc{};
  const bool newer = major > 2 || (major == 2 && minor > kNewestMinor);
  if (has_minor && newer) return match;
  return Error{ErrorCode::kInvalidArgument, "no rules for torch '" + std::string(text) +
                                                "'; known: " + std::string(kNames.front()) + " … " +
                                                std::string(kNames.back())};
}

}  // namespace fragscope::model
