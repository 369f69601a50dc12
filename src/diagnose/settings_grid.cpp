#include <array>
#include <string>

#include "diagnose/advice.h"
#include "model/allocator_config.h"

namespace fragscope::diagnose {
namespace {

std::string joined(const std::string& left, const std::string& right) {
  return left.empty() || right.empty() ? left + right : left + "," + right;
}

std::string option(const char* name, uint64_t value) {
  return value == 0 ? std::string() : name + (":" + std::to_string(value));
}

class Grid {
 public:
  explicit Grid(const model::VersionProfile& profile) : profile_(profile) {}

  std::vector<std::string> build() {
    const uint64_t smallest = profile_.exclusive_minimum ? 21 : 20;
    const std::array<uint64_t, 9> splits = {0, smallest, 32, 64, 128, 256, 512, 1024, 2048};
    const std::array<uint64_t, 5> roundups = {0, 2, 4, 8, 16};
    for (const uint64_t split : splits) {
      for (const uint64_t roundup : roundups) {
        const std::string base =
            joined(option("max_split_size_mb", split), option("roundup_power2_divisions", roundup));
        add(base);
        // Up to 2.4 the release of oversize blocks trips over expandable ones.
        if (split == 0 || !profile_.expandable_release_asserts) {
          add(joined("expandable_segments:True", base));
        }
      }
      for (const uint64_t slack : {64, 256, 1024}) {
        if (split == 0 || !profile_.has_non_split_rounding) continue;
        add(joined(option("max_split_size_mb", split), option("max_non_split_rounding_mb", slack)));
      }
    }
    for (const uint64_t large : {12, 32, 64, 128}) {
      if (!profile_.has_large_segment_size) continue;
      add(option("large_segment_size_mb", large));
      add(joined("expandable_segments:True", option("large_segment_size_mb", large)));
    }
    return std::move(all_);
  }

 private:
  // What this release refuses is no advice.
  void add(const std::string& settings) {
    const bool expandable = settings.find("expandable") != settings.npos;
    if (expandable && !profile_.has_expandable) return;
    if (!settings.empty() && !model::parse_config(settings, profile_)) return;
    all_.push_back(settings);
  }

  const model::VersionProfile& profile_;
  std::vector<std::string> all_;
};

}  // namespace

std::vector<std::string> settings_grid(const model::VersionProfile& profile) {
  return Grid(profile).build();
}

}  // namespace fragscope::diagnose
