// Which random command list is wanted, as words: what tests/golden/oracle/families.tsv names and
// the oracle's command line takes.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "model/version_profile.h"
#include "tests/support/random_commands.h"
#include "tests/support/random_host_commands.h"
#include "tests/support/random_settings.h"

namespace fragscope::test {

struct ListOptions {
  uint64_t commands = 300;
  bool scopes = false;
  bool captures = false;
  bool checkpoints = false;
  bool fractions = false;
  bool events = true;
  bool strings = false;  // settings strings at run time
  bool host = false;     // pinned host memory
  bool small = false;    // … in small pieces
  unsigned devices = 1;
  std::vector<std::string> pools;
  std::vector<std::string> settings;
};

// Takes the option at words[at]; `at` moves to the last word it consists of. False: no such option.
inline bool take_list_option(const std::vector<std::string>& words, size_t& at,
                             ListOptions& options) {
  const std::string& word = words[at];
  const bool has_value = at + 1 < words.size();
  const auto number = [&] { return std::strtoull(words[++at].c_str(), nullptr, 10); };
  const std::array<std::pair<const char*, bool*>, 7> flags = {{
      {"--scopes", &options.scopes},
      {"--strings", &options.strings},
      {"--host", &options.host},
      {"--small", &options.small},
      {"--checkpoints", &options.checkpoints},
      {"--captures", &options.captures},
      {"--fractions", &options.fractions},
  }};
  for (const auto& [name, flag] : flags) {
    if (word == name) return *flag = true;
  }
  if (word == "--no-events") {
    options.events = false;
  } else if (word == "--commands" && has_value) {
    options.commands = number();
  } else if (word == "--devices" && has_value) {
    options.devices = static_cast<unsigned>(number());
  } else if (word == "--pool" && has_value) {
    options.pools.push_back(words[++at]);
  } else if (word == "--switch" && has_value) {
    options.settings.push_back(words[++at]);
  } else {
    return false;
  }
  return true;
}

inline ListShape shape_of(const ListOptions& options, const model::VersionProfile& profile) {
  ListShape shape;
  shape.commands = options.commands;
  shape.scopes = options.scopes;
  shape.scope_streams = profile.scope_by_stream;
  shape.captures = options.captures;
  shape.checkpoints = options.checkpoints;
  shape.fractions = options.fractions;
  shape.events = options.events;
  shape.settings = options.settings;
  shape.devices = options.devices;
  shape.pools = options.pools;
  return shape;
}

inline std::vector<std::string> make_list(const ListOptions& options,
                                          const model::VersionProfile& profile, uint64_t seed) {
  if (options.strings) {
    const bool closed = profile.grammar == model::ConfigGrammar::kLexer;
    return SettingsMaker(seed, closed).list(options.commands);
  }
  if (!options.host) return ListMaker(seed, shape_of(options, profile)).make();
  HostShape shape;
  shape.commands = options.commands;
  shape.devices = options.devices;
  shape.pools = options.scopes;
  shape.background = profile.has_background_threads;
  shape.stats = profile.host_stats != model::HostStatsForm::kNone;
  shape.one_stream = profile.host_background == model::HostBackground::kAsksPending;
  shape.small = options.small;
  shape.settings = options.settings;
  return HostListMaker(seed, shape).make();
}

// Bytes of the device that the list of a seed runs on.
inline uint64_t memory_of_list(uint64_t seed) {
  return std::array{8192, 700, 2000, 64, 300}[seed % 5] * kMiB;
}

}  // namespace fragscope::test
