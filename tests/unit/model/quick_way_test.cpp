// Most requests are served on a quick way (CachingAllocator::malloc); all others go by the rules. A
// threshold of garbage collection makes every request go by the rules and, as long as no memory
// fraction is set, has no other effect (PyTorch collects only below a limit): with and without it
// the answers must be the same, trace, statistics, segments and all.
#include <string>
#include <vector>

#include "model/command_json.h"
#include "model/command_runner.h"
#include "tests/support/catch.h"
#include "tests/support/list_options.h"

using namespace fragscope::model;
using fragscope::test::ListOptions;

namespace {

constexpr const char* kThreshold = "garbage_collection_threshold:0.5";

struct Shape {
  int first_minor;
  std::string settings;
  ListOptions options;
};

std::vector<Shape> shapes() {
  ListOptions scopes;
  scopes.scopes = true;
  ListOptions captures = scopes;
  captures.captures = true;
  ListOptions checkpoints = scopes;
  checkpoints.checkpoints = true;
  checkpoints.events = false;
  ListOptions switches;  // free blocks of expandable segments, when they are off
  switches.settings = {"expandable_segments:True", "expandable_segments:False",
                       "max_split_size_mb:32", "roundup_power2_divisions:4"};
  ListOptions pools = scopes;
  pools.pools = {"use_on_oom"};
  return {{0, "", {}},
          {0, "", scopes},
          {0, "", captures},
          {1, "", checkpoints},
          {1, "", switches},
          {8, "", pools},
          {0, "max_split_size_mb:32", {}},
          {0, "roundup_power2_divisions:4", {}},
          {1, "expandable_segments:True", {}}};
}

std::string answer(const Shape& shape, const std::string& threshold, const VersionProfile& profile,
                   uint64_t seed) {
  ListOptions options = shape.options;
  const auto with = [&](const std::string& settings) {
    return settings + (settings.empty() || threshold.empty() ? "" : ",") + threshold;
  };
  for (std::string& settings : options.settings) settings = with(settings);
  const auto lines = fragscope::test::make_list(options, profile, seed);
  const auto list = parse_commands(fragscope::test::join_lines(lines), "list");
  const auto config = parse_config(with(shape.settings), profile);
  REQUIRE(list.ok());
  REQUIRE(config.ok());
  const uint64_t memory = fragscope::test::memory_of_list(seed);
  const auto target = make_model_target(list.value(), config.value(), profile, memory);
  ListResult result = run_commands(list.value(), *target);
  for (CommandResult& each : result.results)
    each.command.settings.clear();  // differ by the threshold
  return list_result_json(result, profile, {});
}

}  // namespace

TEST_CASE("the quick way of a request gives what the rules give") {
  for (const Shape& shape : shapes()) {
    for (const VersionProfile& profile : version_profiles()) {
      if (profile.minor < shape.first_minor) continue;
      for (uint64_t seed = 0; seed < 4; ++seed) {
        INFO("torch " << profile.name << ", '" << shape.settings << "', seed " << seed);
        CHECK(answer(shape, "", profile, seed) == answer(shape, kThreshold, profile, seed));
      }
    }
  }
}
