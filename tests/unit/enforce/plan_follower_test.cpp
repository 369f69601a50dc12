// src/enforce/plan_follower.h: expected requests get their places, and no plan, however wrong,
// makes two live blocks share a byte.
#include "enforce/plan_follower.h"

#include <map>
#include <random>

#include "tests/support/catch.h"

using namespace fragscope::enforce;

namespace {

constexpr uint64_t kUnit = kPlanGranularity;

Plan plan_of(std::vector<PlannedRequest> requests, uint64_t arena, size_t loop_start = 0) {
  Plan plan;
  plan.arena_bytes = arena;
  plan.requests = std::move(requests);
  plan.loop_start = loop_start;
  REQUIRE(check_plan(plan).ok());
  return plan;
}

// Sizes 1, 2, … n units, one after another in the arena.
Plan staircase(uint64_t count) {
  std::vector<PlannedRequest> requests;
  uint64_t at = 0;
  for (uint64_t i = 1; i <= count; ++i) {
    requests.push_back({i * kUnit, at, 0});
    at += i * kUnit;
  }
  return plan_of(requests, at);
}

}  // namespace

TEST_CASE("a program that does what it did gets every place, step by step") {
  PlanFollower follower(staircase(20));
  for (int step = 0; step < 3; ++step) {
    uint64_t at = 0;
    std::vector<uint64_t> live;
    for (uint64_t i = 1; i <= 20; ++i) {
      const auto offset = follower.offer(i * kUnit - 7, 0);  // rounded as device addresses are
      REQUIRE(offset == at);
      live.push_back(at);
      at += i * kUnit;
    }
    for (const uint64_t offset : live) CHECK(follower.release(offset));
  }
  CHECK(follower.counts().placed == 60);
  CHECK(follower.live_bytes() == 0);
}

TEST_CASE("a request that is not in the plan gets no place and loses nobody") {
  PlanFollower follower(staircase(20));
  CHECK(follower.offer(1 * kUnit, 0));
  CHECK_FALSE(follower.offer(1000 * kUnit, 0));
  CHECK(follower.offer(2 * kUnit, 0));
  CHECK(follower.counts().unexpected == 1);
}

TEST_CASE("a skipped request is caught up with once the place is plain") {
  PlanFollower follower(staircase(40));
  uint64_t placed = 0;
  for (uint64_t i = 5; i <= 40; ++i) placed += follower.offer(i * kUnit, 0).has_value();
  CHECK(placed == 40 - 5 + 1 - (PlanFollower::kContext - 1));
  CHECK(follower.counts().resyncs == 1);
}

TEST_CASE("a lost follower finds the next step") {
  PlanFollower follower(staircase(20));
  for (int i = 0; i < 100; ++i) CHECK_FALSE(follower.offer(777 * kUnit, 0));
  CHECK_FALSE(follower.synced());
  for (uint64_t i = 1; i <= 20; ++i) {
    if (const auto offset = follower.offer(i * kUnit, 0)) follower.release(*offset);
  }
  CHECK(follower.synced());
  for (uint64_t i = 1; i <= 20; ++i) CHECK(follower.offer(i * kUnit, 0));
}

TEST_CASE("what comes once comes before the loop, and a plan without a loop ends") {
  std::vector<PlannedRequest> requests = {
      {kUnit, 0, 0}, {2 * kUnit, kUnit, 0}, {3 * kUnit, 1536, 0}};
  PlanFollower looped(plan_of(requests, 4096, 1));
  CHECK(looped.offer(kUnit, 0) == 0);
  for (int i = 0; i < 3; ++i) {
    CHECK(looped.offer(2 * kUnit, 0) == kUnit);
    CHECK(looped.offer(3 * kUnit, 0) == 1536);
    looped.release(kUnit);
    looped.release(1536);
  }
  PlanFollower once(plan_of(requests, 4096, 3));
  for (uint64_t i = 1; i <= 3; ++i) CHECK(once.offer(i * kUnit, 0));
  CHECK_FALSE(once.synced());
  CHECK_FALSE(once.offer(kUnit, 0));
}

TEST_CASE("a block that lives longer than planned keeps its place") {
  PlanFollower follower(plan_of({{kUnit, 0, 0}, {2 * kUnit, 0, 0}}, 1024));
  CHECK(follower.offer(kUnit, 0) == 0);
  CHECK_FALSE(follower.offer(2 * kUnit, 0));
  CHECK(follower.counts().occupied == 1);
  follower.release(0);
  CHECK_FALSE(follower.release(0));
  CHECK(follower.offer(kUnit, 0) == 0);
}

TEST_CASE("another stream gets memory only after a synchronisation") {
  PlanFollower follower(plan_of({{2 * kUnit, 0, 0}, {kUnit, kUnit, 1}}, 1024));
  REQUIRE(follower.offer(2 * kUnit, 7) == 0);
  follower.release(0);
  CHECK_FALSE(follower.offer(kUnit, 8));
  REQUIRE(follower.offer(2 * kUnit, 7) == 0);  // its own stream: at once
  follower.release(0);
  follower.synchronized();
  CHECK(follower.offer(kUnit, 8) == kUnit);
}

TEST_CASE("a request on another stream than before is not the expected one") {
  PlanFollower follower(plan_of({{kUnit, 0, 0}, {kUnit, kUnit, 0}}, 1024));
  CHECK(follower.offer(kUnit, 7) == 0);
  CHECK_FALSE(follower.offer(kUnit, 8));
  CHECK(follower.offer(kUnit, 7) == kUnit);
}

TEST_CASE("with hostile plans and foreign programs no live blocks overlap") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    Plan plan;
    plan.arena_bytes = (1 + random() % 64) * kUnit;
    const size_t count = random() % 30;
    for (size_t i = 0; i < count; ++i) {
      PlannedRequest request;
      request.size = (1 + random() % 8) * kUnit;
      request.offset = random() % 70 * kUnit;  // also out of the arena: checked again when placed
      request.stream = static_cast<uint32_t>(random() % 3);
      plan.requests.push_back(request);
    }
    plan.loop_start = count == 0 ? 0 : random() % (count + 1);
    PlanFollower follower(plan);
    std::map<uint64_t, uint64_t> live;
    std::map<uint64_t, std::pair<uint64_t, uint64_t>> free_on;  // unit -> stream that used it
    for (int step = 0; step < 500; ++step) {
      if (random() % 3 == 0 && !live.empty()) {
        const auto at = std::next(live.begin(), static_cast<long>(random() % live.size()));
        REQUIRE(follower.release(at->first));
        live.erase(at);
        continue;
      }
      const bool expected = count > 0 && random() % 2 == 0;
      const uint64_t bytes =
          expected ? plan.requests[random() % count].size : random() % (9 * kUnit);
      const auto offset = follower.offer(bytes, random() % 3);
      if (!offset) continue;
      const uint64_t size = plan_size(bytes);
      REQUIRE(*offset + size <= plan.arena_bytes);
      const auto next = live.lower_bound(*offset);
      REQUIRE((next == live.end() || next->first >= *offset + size));
      if (next != live.begin()) {
        REQUIRE(std::prev(next)->first + std::prev(next)->second <= *offset);
      }
      live[*offset] = size;
    }
    uint64_t sum = 0;
    for (const auto& [offset, size] : live) sum += size;
    CHECK(follower.live_bytes() == sum);
  }
}

TEST_CASE("plan files are read, and refused when they cannot be followed") {
  const auto plan = parse_plan(
      R"({"fragscope_plan": 1, "made_from": {"run": "a \" b", "list": [1, {"x": null}]},
          "arena_bytes": 2048, "loop_start": 1,
          "requests": [{"size": 512, "offset": 0, "stream": 0, "lifetime": [0, 4]},
                       {"size": 1024, "offset": null, "stream": 1}]})");
  REQUIRE(plan.ok());
  CHECK(plan->arena_bytes == 2048);
  CHECK(plan->loop_start == 1);
  REQUIRE(plan->requests.size() == 2);
  CHECK(plan->requests[0].offset == 0);
  CHECK(plan->requests[1].offset == kUnplanned);
  CHECK(plan->requests[1].stream == 1);

  const char* const wrong[] = {
      "",
      "{",
      "[]",
      "{}",
      "null",
      R"({"fragscope_plan": 1} x)",
      R"({"fragscope_plan": 2})",
      R"({"fragscope_plan": 1, "loop_start": 1})",
      R"({"fragscope_plan": 1, "arena_bytes": -1})",
      R"({"fragscope_plan": 1, "arena_bytes": 1e3})",
      R"({"fragscope_plan": 1, "arena_bytes": 512, "requests": [{"size": 1024, "offset": 0}]})",
      R"({"fragscope_plan": 1, "arena_bytes": 512, "requests": [{"size": 512, "offset": 8}]})",
      R"({"fragscope_plan": 1, "arena_bytes": 512, "requests": [{"size": 0, "offset": 0}]})",
      R"({"fragscope_plan": 1, "arena_bytes": 512,
          "requests": [{"size": 512, "offset": 18446744073709551104}]})",
      R"({"fragscope_plan": 1, "arena_bytes": 99999999999999999})",
      R"({"fragscope_plan": 1, "requests": [{"size": 512, "stream": 99999999999}]})",
  };
  for (const char* text : wrong) {
    CAPTURE(text);
    CHECK_FALSE(parse_plan(text).ok());
  }
  std::string deep = R"({"fragscope_plan": 1, "x": )";
  deep += std::string(100'000, '[');
  CHECK_FALSE(parse_plan(deep).ok());
  CHECK(parse_plan("{}").error().code == fragscope::ErrorCode::kForeign);
}
