#include "replay/event_stream.h"

#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::replay;

namespace {

Event event_of(uint32_t pid, uint64_t seq, uint64_t time_ns) {
  Event event;
  event.pid = pid;
  event.seq = seq;
  event.time_ns = time_ns;
  return event;
}

std::vector<std::pair<uint32_t, uint64_t>> drain(EventStream& stream) {
  std::vector<std::pair<uint32_t, uint64_t>> order;
  Event event;
  while (stream.next(event)) order.emplace_back(event.pid, event.seq);
  return order;
}

using Order = std::vector<std::pair<uint32_t, uint64_t>>;

}  // namespace

TEST_CASE("streams merge by time, then pid, then seq") {
  const std::vector<Event> first = {event_of(7, 1, 10), event_of(7, 2, 30), event_of(7, 3, 30)};
  const std::vector<Event> second = {event_of(5, 1, 20), event_of(5, 2, 30), event_of(5, 3, 40)};
  VectorStream a(first);
  VectorStream b(second);
  MergedStream merged({&a, &b});
  const Order expected = {{7, 1}, {5, 1}, {5, 2}, {7, 2}, {7, 3}, {5, 3}};
  CHECK(drain(merged) == expected);
  Event untouched = event_of(1, 2, 3);
  CHECK_FALSE(merged.next(untouched));
  CHECK(untouched.pid == 1);
  merged.rewind();
  CHECK(drain(merged) == expected);
}

TEST_CASE("a clock that steps back does not change the order inside a process") {
  const std::vector<Event> first = {event_of(1, 1, 50), event_of(1, 2, 10), event_of(1, 3, 60)};
  const std::vector<Event> second = {event_of(2, 1, 20)};
  VectorStream a(first);
  VectorStream b(second);
  MergedStream merged({&a, &b});
  CHECK(drain(merged) == Order{{2, 1}, {1, 1}, {1, 2}, {1, 3}});
}

TEST_CASE("no sources and empty sources end at once") {
  MergedStream none({});
  CHECK(drain(none).empty());
  VectorStream empty({});
  MergedStream one({&empty});
  CHECK(drain(one).empty());
}
