// src/replay/step_plan.h: the repeating part of a request sequence, and places that never overlap.
#include "replay/step_plan.h"

#include <algorithm>
#include <random>

#include "tests/support/catch.h"

using namespace fragscope::replay;

namespace {

// A program as text of a sort: sizes in units of 512 bytes, each with its life in requests.
struct Line {
  uint64_t units = 1;
  uint32_t life = 1;
  uint32_t stream = 0;
};

std::vector<ProgramRequest> program(const std::vector<Line>& lines) {
  std::vector<ProgramRequest> requests;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool ends = lines[i].life != kNoDeath;
    requests.push_back({lines[i].units * 512, lines[i].stream,
                        ends ? static_cast<uint32_t>(i + lines[i].life) : kNoDeath, i + 1});
  }
  return requests;
}

void append(std::vector<Line>& lines, const std::vector<Line>& more, int times = 1) {
  for (int i = 0; i < times; ++i) lines.insert(lines.end(), more.begin(), more.end());
}

std::vector<Line> random_lines(std::mt19937& random, size_t count, uint32_t longest) {
  std::vector<Line> lines;
  for (size_t i = 0; i < count; ++i) {
    lines.push_back({1 + random() % 50, static_cast<uint32_t>(1 + random() % longest),
                     static_cast<uint32_t>(random() % 8 == 0)});
  }
  return lines;
}

// Runs the plan for some rounds and looks at every moment; the highest byte in use.
void check_no_overlap(const std::vector<ProgramRequest>& requests, const StepPlan& plan,
                      size_t rounds) {
  const size_t loop = plan.offsets.size() - plan.loop_start;
  struct Live {
    uint64_t offset, size;
    uint64_t death;
  };
  std::vector<Live> live;
  const size_t count = plan.loop_start + loop * rounds;
  for (size_t now = 0; now < count; ++now) {
    std::erase_if(live, [&](const Live& block) { return block.death <= now; });
    const size_t at =
        now < plan.loop_start ? now : plan.loop_start + (now - plan.loop_start) % loop;
    if (plan.offsets[at] == StepPlan::kNoPlace) continue;
    const uint64_t death = plan.deaths[at] == kNoDeath ? UINT64_MAX : now + plan.deaths[at] - at;
    const Live block{plan.offsets[at], requests[at].bytes, death};
    REQUIRE(block.offset + block.size <= plan.arena_bytes);
    for (const Live& other : live) {
      const bool apart =
          block.offset + block.size <= other.offset || other.offset + other.size <= block.offset;
      REQUIRE(apart);
    }
    live.push_back(block);
  }
}

}  // namespace

TEST_CASE("a repeating step is found after what comes once") {
  std::mt19937 random(1);
  const std::vector<Line> once = random_lines(random, 57, 5);
  const std::vector<Line> step = random_lines(random, 40, 5);
  std::vector<Line> lines = once;
  append(lines, step, 6);
  const auto requests = program(lines);
  const auto found = step_by_period(requests);
  REQUIRE(found);
  CHECK(found->length == 40);
  CHECK(found->repeats == 6);
  CHECK(found->start <= 57);
}

TEST_CASE("equal layers inside a step are not the step") {
  std::mt19937 random(2);
  const std::vector<Line> layer = random_lines(random, 10, 3);
  std::vector<Line> step = random_lines(random, 15, 3);
  append(step, layer, 12);
  std::vector<Line> lines;
  append(lines, step, 5);
  const auto found = step_by_period(program(lines));
  REQUIRE(found);
  CHECK(found->length == step.size());
}

TEST_CASE("what does not repeat three times is no step") {
  std::mt19937 random(3);
  const std::vector<Line> step = random_lines(random, 60, 5);
  std::vector<Line> lines = random_lines(random, 100, 5);
  append(lines, step, 2);
  CHECK_FALSE(step_by_period(program(lines)));
  CHECK_FALSE(step_by_period(program(random_lines(random, 500, 5))));
  CHECK_FALSE(step_by_period(program({})));
}

TEST_CASE("marks say where a step begins") {
  std::mt19937 random(4);
  const std::vector<Line> step = random_lines(random, 25, 5);
  std::vector<Line> lines = random_lines(random, 10, 5);
  append(lines, step, 4);
  const auto requests = program(lines);
  const std::vector<uint64_t> marks = {11, 36, 61, 86};  // seqs are positions + 1
  const auto found = step_by_marks(requests, marks);
  REQUIRE(found);
  CHECK(found->length == 25);
  CHECK(found->repeats == 4);
  const std::vector<uint64_t> elsewhere = {3, 9, 20};
  CHECK_FALSE(step_by_marks(requests, elsewhere));
}

TEST_CASE("blocks of a plan never overlap, also across steps") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    std::vector<Line> lines = random_lines(random, random() % 50, 80);
    for (Line& line : lines) {
      if (random() % 3 == 0) line.life = kNoDeath;  // parameters
    }
    append(lines, random_lines(random, 20 + random() % 60, 30), 5);
    const auto requests = program(lines);
    const auto step = step_by_period(requests);
    REQUIRE(step);
    const StepPlan plan = plan_step(requests, step);
    CHECK(plan.live_peak <= plan.arena_bytes);
    check_no_overlap(requests, plan, 4);
  }
}

TEST_CASE("a block that outlives its next instance has no place") {
  std::vector<Line> step = {{1, 1}, {2, 1},  {3, 1},  {4, 1},  {5, 1},  {6, 1},  {7, 1},  {8, 1},
                            {9, 1}, {10, 1}, {11, 1}, {12, 1}, {13, 1}, {14, 1}, {15, 1}, {16, 40}};
  std::vector<Line> lines;
  append(lines, step, 6);
  const auto requests = program(lines);
  const StepPlan plan = plan_step(requests, step_by_period(requests));
  const auto placeless = std::count(plan.offsets.begin() + static_cast<long>(plan.loop_start),
                                    plan.offsets.end(), StepPlan::kNoPlace);
  CHECK(placeless == 1);
}

TEST_CASE("the whole run as it was is a plan without a loop") {
  std::mt19937 random(5);
  const auto requests = program(random_lines(random, 300, 40));
  const StepPlan plan = plan_step(requests, std::nullopt);
  CHECK(plan.loop_start == 300);
  CHECK(plan.offsets.size() == 300);
  check_no_overlap(requests, plan, 0);
  CHECK(static_cast<double>(plan.arena_bytes) < 1.2 * static_cast<double>(plan.live_peak));
}

TEST_CASE("streams share no memory") {
  std::vector<Line> lines = {{4, 1, 0}, {4, 1, 1}, {4, 1, 0}, {4, 1, 1}};
  const auto requests = program(lines);
  const StepPlan plan = plan_step(requests, std::nullopt);
  CHECK(plan.arena_bytes == 2 * 4 * 512);
  CHECK(plan.offsets[0] == plan.offsets[2]);
  CHECK(plan.offsets[1] == plan.offsets[3]);
}
