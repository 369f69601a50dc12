#include "metrics/open_ranges.h"

#include "tests/support/catch.h"

using namespace fragscope;

namespace {

Event range(EventKind kind, uint32_t tid, uint32_t text = 0) {
  Event event;
  event.kind = kind;
  event.tid = tid;
  event.text = text;
  return event;
}

}  // namespace

TEST_CASE("open ranges: nested on one thread, and lent to a thread without any") {
  metrics::OpenRanges ranges;
  CHECK(ranges.innermost(1) == 0);
  ranges.feed(range(EventKind::range_push, 1, 10));
  ranges.feed(range(EventKind::range_push, 1, 11));
  CHECK(ranges.innermost(1) == 11);
  CHECK(ranges.outermost(1) == 10);
  CHECK(ranges.innermost(2) == 11);  // autograd's thread
  ranges.feed(range(EventKind::range_push, 3, 12));
  CHECK(ranges.innermost(2) == 0);  // whose?
  ranges.feed(range(EventKind::range_pop, 1));
  CHECK(ranges.innermost(1) == 10);
  ranges.feed(range(EventKind::range_pop, 1));
  ranges.feed(range(EventKind::range_pop, 1));  // pushed before the recording
  CHECK(ranges.innermost(1) == 12);
}
