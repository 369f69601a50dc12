// What was held while named ranges were open.
#include "metrics/phases.h"

#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::metrics;

namespace {

struct Story {
  Phases phases;
  uint64_t seq = 0;

  void tell(EventKind kind, uint32_t text, uint64_t driver, uint64_t allocated, uint32_t tid = 1,
            uint64_t range = kUnknown) {
    Event event;
    event.kind = kind;
    event.seq = ++seq;
    event.time_ns = seq * 10;
    event.tid = tid;
    event.text = text;
    event.aux = range;
    if (phases.wants(event)) phases.feed(event, {driver, allocated});
  }
};

}  // namespace

TEST_CASE("nested ranges each have their peak and what they grew by") {
  Story story;
  story.tell(EventKind::alloc, 0, 500, 500);  // before any range
  story.tell(EventKind::range_push, 1, 100, 50);
  story.tell(EventKind::range_push, 2, 100, 50);
  story.tell(EventKind::alloc, 0, 300, 250);
  story.tell(EventKind::free_requested, 0, 300, 80);
  story.tell(EventKind::range_pop, 0, 300, 80);
  story.tell(EventKind::alloc, 0, 400, 120);
  story.tell(EventKind::range_pop, 0, 400, 120);
  const auto phases = story.phases.finish(1000);
  REQUIRE(phases.size() == 2);
  CHECK(phases[0].text == 1);
  CHECK(phases[0].driver_peak == 400);
  CHECK(phases[0].allocated_peak == 250);
  CHECK(phases[0].allocated_growth == 70);
  CHECK(phases[0].total_ns == 60);
  CHECK(phases[1].allocated_peak == 250);
  CHECK(phases[1].allocated_growth == 30);
  CHECK(phases[1].count == 1);
}

TEST_CASE("ranges of threads do not mix; ranges by number may end on another thread") {
  Story story;
  story.tell(EventKind::range_push, 1, 10, 10, 1);
  story.tell(EventKind::range_push, 2, 10, 10, 2);
  story.tell(EventKind::range_start, 3, 10, 10, 1, 77);
  story.tell(EventKind::range_pop, 0, 20, 5, 1);
  story.tell(EventKind::range_end, 0, 30, 6, 2, 77);
  story.tell(EventKind::range_end, 0, 30, 6, 2, 78);  // began before the recording
  story.tell(EventKind::range_pop, 0, 30, 6, 3);
  const auto phases = story.phases.finish(90);
  REQUIRE(phases.size() == 3);
  CHECK(phases[0].allocated_growth == -5);
  CHECK(phases[1].count == 1);  // open at the end
  CHECK(phases[1].total_ns == 70);
  CHECK(phases[2].driver_peak == 30);
}
