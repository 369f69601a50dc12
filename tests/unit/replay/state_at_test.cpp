// The allocator's state at a moment: rebuilt from the recording and recomputed under other
// settings, with what led to it.
#include "replay/state_at.h"

#include "base/bytes.h"
#include "tests/support/catch.h"
#include "tests/support/recorded_model.h"

using namespace fragscope;
using namespace fragscope::replay;
using model::TraceAction;
using test::RecordedModel;

namespace {

Result<ProcessState> try_state(const std::vector<Event>& events, const StateSettings& settings,
                               const ReplayOptions& options = {}) {
  ProcessFacts facts;
  facts.pid = 100;
  facts.properties.emplace("torch_version", "2.15");
  VectorStream stream(events);
  return state_at(stream, facts, options, settings);
}

DeviceState state(const std::vector<Event>& events, const StateSettings& settings,
                  const ReplayOptions& options = {}) {
  auto result = try_state(events, settings, options);
  REQUIRE(result.ok());
  REQUIRE(result->devices.size() == 1);
  return std::move(result->devices[0]);
}

StateSettings after(uint64_t seq) {
  StateSettings settings;
  settings.seq = seq;
  return settings;
}

ReplayOptions under(const std::string& conf) {
  ReplayOptions options;
  options.alloc_conf = conf;
  return options;
}

uint64_t allocated(const DeviceState& state) {
  uint64_t bytes = 0;
  for (const auto& segment : state.segments) bytes += segment.allocated_size;
  return bytes;
}

std::vector<TraceAction> actions(const DeviceState& state) {
  std::vector<TraceAction> result;
  for (const StateEntry& entry : state.trace) result.push_back(entry.action);
  return result;
}

// 3 MiB and 5 MiB in one segment of 20 MiB; the first is freed, the second stays.
struct TwoBlocks {
  TwoBlocks() {
    first = recorded.alloc(3 * kMiB);
    after_first = recorded.events().back().seq;
    second = recorded.alloc(5 * kMiB);
    after_second = recorded.events().back().seq;
    recorded.free(first);
    recorded.alloc(100 * kMiB);
  }
  RecordedModel recorded;
  uint64_t first = 0;
  uint64_t second = 0;
  uint64_t after_first = 0;
  uint64_t after_second = 0;
};

}  // namespace

TEST_CASE("the recorded allocator after an event") {
  TwoBlocks run;
  const auto& events = run.recorded.events();
  const DeviceState one = state(events, after(run.after_first));
  REQUIRE(one.segments.size() == 1);
  CHECK(one.segments[0].address == run.first);
  CHECK(one.segments[0].total_size == 20 * kMiB);
  CHECK(allocated(one) == 3 * kMiB);
  CHECK(actions(one) == std::vector{TraceAction::kSegmentAlloc, TraceAction::kAlloc});

  const DeviceState two = state(events, after(run.after_second));
  CHECK(allocated(two) == 8 * kMiB);
  CHECK(two.trace.size() == 3);
  CHECK(two.trace.back().address == run.second);
  CHECK(two.trace.back().size == 5 * kMiB);
  CHECK(two.trace.back().origin.seq == run.after_second);
  CHECK(two.blocks.count(run.first) == 1);

  const DeviceState end = state(events, {});
  CHECK(allocated(end) == 105 * kMiB);
  CHECK(end.segments.size() == 2);
  CHECK(end.blocks.count(run.first) == 0);
  CHECK(end.blocks.count(run.second) == 1);
  CHECK(end.ranges.count(run.first) == 1);
}

TEST_CASE("the state after each event is that of a recording that ends there") {
  TwoBlocks run;
  const auto& events = run.recorded.events();
  for (const Event& event : events) {
    if (event.seq < run.after_first) continue;  // so far the cut recording has no block plane
    const std::vector<Event> prefix(events.begin(),
                                    events.begin() + static_cast<ptrdiff_t>(event.seq));
    REQUIRE(prefix.back().seq == event.seq);
    const auto cut = try_state(prefix, {});
    const auto whole = try_state(events, after(event.seq));
    REQUIRE(cut.ok());
    REQUIRE(whole.ok());
    REQUIRE(cut->devices.size() == whole->devices.size());
    for (size_t i = 0; i < cut->devices.size(); ++i) {
      CHECK(cut->devices[i].segments.size() == whole->devices[i].segments.size());
      CHECK(allocated(cut->devices[i]) == allocated(whole->devices[i]));
      CHECK(actions(cut->devices[i]) == actions(whole->devices[i]));
    }
  }
}

TEST_CASE("a what-if is computed up to the moment, with time and stack of the recorded calls") {
  TwoBlocks run;
  const auto& events = run.recorded.events();
  const auto result = try_state(events, after(run.after_second), under("expandable_segments:True"));
  REQUIRE(result.ok());
  CHECK(result->mode == ReplayMode::what_if);
  CHECK(result->config.expandable_segments);
  const DeviceState& device = result->devices.at(0);
  REQUIRE(device.segments.size() == 1);
  CHECK(device.segments[0].is_expandable);
  CHECK(device.segments[0].total_size == 20 * kMiB);
  CHECK(allocated(device) == 8 * kMiB);
  CHECK(actions(device) ==
        std::vector{TraceAction::kSegmentMap, TraceAction::kAlloc, TraceAction::kAlloc});
  CHECK(device.trace.back().origin.seq == run.after_second);
  CHECK(device.trace.back().origin.time_ns == 1000 * run.after_second);
  CHECK(device.trace.back().size == 5 * kMiB);
}

TEST_CASE("a what-if to the end has the frees, under the address and pool of their blocks") {
  TwoBlocks run;
  const DeviceState device = state(run.recorded.events(), {}, under("max_split_size_mb:200"));
  CHECK(allocated(device) == 105 * kMiB);
  CHECK(actions(device) == std::vector{TraceAction::kSegmentAlloc, TraceAction::kAlloc,
                                       TraceAction::kAlloc, TraceAction::kFreeRequested,
                                       TraceAction::kFreeCompleted, TraceAction::kSegmentAlloc,
                                       TraceAction::kAlloc});
  CHECK(device.trace[3].address == device.trace[1].address);
  CHECK(device.trace[3].size == 3 * kMiB);
}

TEST_CASE("only the newest entries are kept, live blocks all") {
  TwoBlocks run;
  StateSettings settings;
  settings.trace_entries = 2;
  for (const ReplayOptions& options : {ReplayOptions{}, under("max_split_size_mb:200")}) {
    const DeviceState device = state(run.recorded.events(), settings, options);
    CHECK(actions(device) == std::vector{TraceAction::kSegmentAlloc, TraceAction::kAlloc});
    CHECK(device.blocks.size() == 2);
  }
  settings.trace_entries = 0;
  CHECK(state(run.recorded.events(), settings).trace.empty());
}

TEST_CASE("settings that the release refuses are an error with PyTorch's text") {
  TwoBlocks run;
  const auto refused = try_state(run.recorded.events(), {}, under("max_split_size_mb:1"));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().text.find("max_split_size_mb") != std::string::npos);
}
