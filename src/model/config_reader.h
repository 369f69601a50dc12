// What both grammars of the settings string share: the tokens and the place among them, options
// whose values mean the same in all releases, and the closing warning.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/allocator_config.h"
#include "model/config_numbers.h"

namespace fragscope::model {

class ConfigReader {
 protected:
  ConfigReader(std::vector<std::string> tokens, const VersionProfile& profile, ConfigOrigin origin,
               AllocatorConfig& config)
      : tokens_(std::move(tokens)), profile_(profile), origin_(origin), config_(config) {}

  // Entries of the roundup table while a list is read.
  struct Divisions {
    bool first = true;
    size_t last = 0;  // entry of the last key
  };
  // One `key:divisions` of a list; `rest_from` is the first entry that the key `>` fills.
  ConfigFailure add_divisions(const std::string& key, const Result<uint64_t>& megabytes,
                              uint64_t divisions, size_t rest_from, Divisions& state);
  ConfigFailure choose_backend(const std::string& name);
  void warn_of_ignored_options();

  static uint64_t bytes_of(uint64_t megabytes) {
    return std::min(megabytes, UINT64_MAX / kMiB) * kMiB;
  }

  std::vector<std::string> tokens_;
  const VersionProfile& profile_;
  const ConfigOrigin origin_;
  AllocatorConfig& config_;
  size_t at_ = 0;
  bool async_ = false;   // backend:cudaMallocAsync
  bool native_ = false;  // an option that it ignores
};

}  // namespace fragscope::model
