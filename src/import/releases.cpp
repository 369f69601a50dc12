#include "import/releases.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"

namespace fragscope::imported {
namespace {

void at_least(ReleaseRange& range, bool seen, int minor) {
  if (seen) range.oldest = std::max(range.oldest, minor);
}

// A key that a release writes into every file of this kind is not there: an older one.
void before(ReleaseRange& range, bool absent, int minor) {
  if (absent) range.newest = std::min(range.newest, minor - 1);
}

void add(std::string& text, const std::string& option) {
  if (!text.empty()) text += ',';
  text += option;
}

std::string megabytes_text(double bytes) {
  return std::to_string(static_cast<uint64_t>(bytes / static_cast<double>(kMiB)));
}

std::string short_number(double value) {
  std::string text = std::to_string(value);
  while (text.size() > 1 && text.back() == '0') text.pop_back();
  return text;
}

void add_roundup(const SnapshotSettings& settings, std::string& text) {
  std::string list;
  bool any = false;
  for (const auto& [megabytes, divisions] : settings.roundup) {
    any = any || divisions != 0;
    add(list, std::to_string(megabytes) + ":" + std::to_string(divisions));
  }
  if (any) add(text, "roundup_power2_divisions:[" + list + "]");
}

}  // namespace

ReleaseRange releases_of(const Snapshot& snapshot) {
  const SnapshotParts& parts = snapshot.parts;
  const auto& flags = snapshot.settings.flags;
  const auto& numbers = snapshot.settings.numbers;
  ReleaseRange range;
  at_least(range, parts.has(Evidence::block_address), 1);
  at_least(range, parts.has(Evidence::time_us), 2);
  at_least(range, snapshot.has_settings, 3);
  at_least(range, snapshot.has_annotations, 5);
  at_least(range, parts.has(Evidence::compile_context), 8);
  at_least(range, flags.count("graph_capture_record_stream_reuse") != 0, 9);
  at_least(range, parts.has(Evidence::user_metadata), 10);
  at_least(range, parts.has(Evidence::entry_pool), 11);
  at_least(range, numbers.count("max_round_threshold") != 0, 13);
  at_least(range, snapshot.has_host_parts, 14);
  const bool has_entries = !parts.entries.empty();
  const bool whole_file = snapshot.has_settings;  // not cut down by another tool
  before(range, parts.has(Evidence::block_history), 1);
  before(range, has_entries && !parts.has(Evidence::time_us), 2);
  before(range, whole_file && !snapshot.has_annotations, 6);
  before(range, whole_file && has_entries && !parts.has(Evidence::compile_context), 8);
  before(range, whole_file && has_entries && !parts.has(Evidence::user_metadata), 10);
  before(range, whole_file && flags.count("graph_capture_record_stream_reuse") == 0, 9);
  before(range, has_entries && !parts.has(Evidence::entry_pool), 15);
  range.newest = std::max(range.newest, range.oldest);
  return range;
}

std::optional<std::string> settings_text(const Snapshot& snapshot) {
  const SnapshotSettings& settings = snapshot.settings;
  if (!snapshot.has_settings) return std::nullopt;
  if (!settings.text.empty()) return settings.text;
  // Settings of a program, or of a variable that the file does not name.
  std::string text;
  const auto flag = settings.flags.find("expandable_segments");
  if (flag != settings.flags.end() && flag->second) add(text, "expandable_segments:True");
  const auto split = settings.numbers.find("max_split_size");
  if (split != settings.numbers.end() && split->second > 0 && split->second < 9e18) {
    add(text, "max_split_size_mb:" + megabytes_text(split->second));
  }
  const auto threshold = settings.numbers.find("garbage_collection_threshold");
  if (threshold != settings.numbers.end() && threshold->second > 0) {
    add(text, "garbage_collection_threshold:" + short_number(threshold->second));
  }
  add_roundup(settings, text);
  return text;
}

}  // namespace fragscope::imported
