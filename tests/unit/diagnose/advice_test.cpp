#include "diagnose/advice.h"

#include <algorithm>

#include "diagnose/advice_text.h"
#include "tests/support/catch.h"
#include "tests/support/recorded_model.h"

using namespace fragscope;
using namespace fragscope::diagnose;
using test::RecordedModel;
using test::RecordSettings;

namespace {

replay::RecordedProcess read(std::vector<Event>& events, const std::string& conf = "",
                             const std::string& version = "2.15") {
  replay::ProcessFacts facts;
  facts.pid = 100;
  facts.properties["torch_version"] = version;
  if (!conf.empty()) facts.properties["alloc_conf"] = conf;
  replay::VectorStream stream(events);
  replay::ReadSettings settings;
  settings.with_calls = true;
  return replay::read_process(stream, facts, settings);
}

bool contains(const std::vector<std::string>& grid, const std::string& settings) {
  return std::find(grid.begin(), grid.end(), settings) != grid.end();
}

// Segments of ever new sizes, each pinned by a small block.
void fragment(RecordedModel& recorded) {
  for (uint64_t mib = 100; mib < 130; mib += 2) {
    recorded.free(recorded.alloc(mib * kMiB));
    recorded.alloc(2 * kMiB);
  }
}

}  // namespace

TEST_CASE("advice: the grid holds what a release accepts and nothing that breaks it") {
  for (const model::VersionProfile& profile : model::version_profiles()) {
    const auto grid = settings_grid(profile);
    CHECK(grid.front().empty());
    for (const std::string& settings : grid) {
      CHECK(model::parse_config(settings, profile).ok());
      CHECK(std::count(grid.begin(), grid.end(), settings) == 1);
    }
  }
  const auto old = settings_grid(model::version_profile("2.4"));
  CHECK(contains(old, "expandable_segments:True"));
  CHECK(contains(old, "max_split_size_mb:21"));
  CHECK_FALSE(contains(old, "expandable_segments:True,max_split_size_mb:64"));
  CHECK_FALSE(contains(old, "large_segment_size_mb:64"));
  CHECK(contains(settings_grid(model::version_profile("2.15")),
                 "expandable_segments:True,max_split_size_mb:64"));
  CHECK_FALSE(contains(settings_grid(model::version_profile("2.0")), "expandable_segments:True"));
}

TEST_CASE("advice: pinned segments of ever new sizes want another setting") {
  RecordedModel recorded;
  fragment(recorded);
  const auto process = read(recorded.events());
  const Advice advice = advise(process, 0, {});
  REQUIRE(advice.best);
  CHECK(advice.best->reserved_peak < advice.default_settings.reserved_peak / 4);
  CHECK(advice.exhaustive);
  CHECK(advice.plan_peak >= advice.live_peak);
  CHECK(advice.best->reserved_peak >= advice.plan_peak);
  CHECK(advice_text(advice, "PYTORCH_ALLOC_CONF")
            .find("export PYTORCH_ALLOC_CONF=" + advice.best->settings) != std::string::npos);
}

TEST_CASE("advice: a run without waste keeps the default") {
  RecordedModel recorded;
  for (int i = 0; i < 20; ++i) recorded.alloc(40 * kMiB);
  const Advice advice = advise(read(recorded.events()), 0, {});
  CHECK_FALSE(advice.best);
  CHECK(advice.shares.kept == 800 * kMiB);
  CHECK(advice.shares.returned == 0);
  CHECK(advice_text(advice, "X").find("keep the default") != std::string::npos);
}

TEST_CASE("advice: what is advised is never worse than the default, on no seed and objective") {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    RecordSettings settings;
    settings.version = seed % 2 == 0 ? "2.6" : "2.15";
    RecordedModel recorded(settings);
    test::train(recorded, 12, seed, false);
    const auto process = read(recorded.events(), "", settings.version);
    for (const Objective objective : {Objective::peak, Objective::mallocs}) {
      AdviceSettings asked;
      asked.objective = objective;
      const Advice advice = advise(process, 0, asked);
      for (const TriedSettings& tried : advice.tried) {
        const bool sooner = better(tried, advice.tried.front(), objective);
        CHECK_FALSE(sooner);  // the list is in order
      }
      if (!advice.best) continue;
      CHECK(better(*advice.best, advice.default_settings, objective));
      CHECK(advice.best->ooms <= advice.default_settings.ooms);
    }
  }
}

TEST_CASE("advice: on a device of a given size what fits wins") {
  RecordedModel recorded;
  fragment(recorded);
  AdviceSettings asked;
  asked.objective = Objective::fits;
  asked.device_bytes = 200 * kMiB;
  const Advice advice = advise(read(recorded.events()), 0, asked);
  CHECK(advice.default_settings.ooms > 0);
  REQUIRE(advice.best);
  CHECK(advice.best->ooms == 0);
  CHECK(advice.best->reserved_peak <= 200 * kMiB);
}

TEST_CASE("advice: the recorded settings are tried even when the grid lacks them") {
  RecordSettings settings;
  settings.conf = "max_split_size_mb:33";
  RecordedModel recorded(settings);
  fragment(recorded);
  const Advice advice = advise(read(recorded.events(), settings.conf), 0, {});
  CHECK(advice.recorded_settings.settings == settings.conf);
  CHECK(advice.recorded_settings.reserved_peak > 0);
}

TEST_CASE("advice: advice holds without the last steps, where the steps are known") {
  RecordedModel recorded;
  AdviceSettings asked;
  for (uint64_t step = 0; step < 8; ++step) {
    if (step > 0) asked.step_seqs.push_back(recorded.events().size() + 1);
    fragment(recorded);
  }
  std::vector<Event>& events = recorded.events();
  replay::ProcessFacts facts;
  facts.properties["torch_version"] = "2.15";
  replay::VectorStream stream(events);
  replay::ReadSettings settings;
  settings.with_calls = settings.with_seqs = true;
  const auto process = replay::read_process(stream, facts, settings);
  const Advice advice = advise(process, 0, asked);
  REQUIRE(advice.best);
  // The same run without its last step, asked anew: what was advised is not worse there.
  replay::VectorStream shorter({events.data(), asked.step_seqs.back() - 1});
  const Advice before = advise(replay::read_process(shorter, facts, settings), 0, {});
  const auto found = std::find_if(before.tried.begin(), before.tried.end(), [&](const auto& tried) {
    return tried.settings == advice.best->settings;
  });
  REQUIRE(found != before.tried.end());
  CHECK_FALSE(better(before.default_settings, *found, Objective::peak));
}

TEST_CASE("advice: nothing on the front is beaten in both figures") {
  RecordedModel recorded;
  test::train(recorded, 20, 3, false);
  const Advice advice = advise(read(recorded.events()), 0, {});
  size_t front = 0;
  for (const TriedSettings& tried : advice.tried) {
    if (!tried.on_pareto_front) continue;
    ++front;
    for (const TriedSettings& other : advice.tried) {
      CHECK_FALSE((other.ooms <= tried.ooms && other.reserved_peak < tried.reserved_peak &&
                   other.segment_calls < tried.segment_calls));
    }
  }
  CHECK(front > 0);
}
