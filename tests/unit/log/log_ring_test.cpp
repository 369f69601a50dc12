// A log that keeps the newest events.
#include <sys/resource.h>

#include <atomic>
#include <thread>

#include "tests/unit/log/log_fixture.h"

using namespace fragscope;
using namespace fragscope::log_test;
using log::LogReader;

namespace {

constexpr uint64_t kBlobs = log::kChunkSlots;
constexpr uint64_t kRing = log::kChunkSlots;

struct RingLog {
  TemporaryDirectory directory{"ring"};
  std::string path = directory.path / "a.fslog";
  Log log;
  explicit RingLog(uint64_t ring_slots = kRing) : log(path, kBlobs + ring_slots, 77, 1, kBlobs) {}
  void write(uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; ++i) log.writer.write(numbered_event(i));
  }
};

void check_numbers(const std::vector<Event>& events, uint64_t first) {
  for (size_t i = 0; i < events.size(); ++i) {
    Event expected = numbered_event(first + i);
    expected.seq = i + 1;
    expected.pid = 77;
    if (!(events[i] == expected)) FAIL("event " << i << " is not the one that was written");
  }
}

}  // namespace

TEST_CASE("a ring that is not full is a log like any other, blobs come first") {
  RingLog ring;
  ring.log.writer.write_blob(log::BlobKind::text, 1, std::string(200, 'x'));
  ring.write(0, 100);
  ring.log.writer.write_blob(log::BlobKind::text, 2, "late");
  LogReader reader = open_log(ring.path);
  CHECK(reader.has_ring());
  Collected got;
  read_all(reader, got, true);
  REQUIRE(got.events.size() == 100);
  check_numbers(got.events, 0);
  REQUIRE(got.blobs.size() == 2);
  CHECK(got.blobs[0].bytes == std::string(200, 'x'));
  CHECK(reader.position() == 100);
  CHECK(reader.overwritten_events() == 0);
  CHECK(read_all(reader, got, true) == 0);
}

TEST_CASE("an overrun ring holds the newest events, all blobs, and how many are gone") {
  RingLog ring(2 * kRing);
  ring.log.writer.write_blob(log::BlobKind::stack, 5, "01234567");
  ring.write(0, 5 * kRing + 7);
  for (const bool alive : {true, false}) {
    LogReader reader = open_log(ring.path, LogReader::Access::inspect);
    Collected got;
    read_all(reader, got, alive);
    REQUIRE(got.events.size() == 2 * kRing);
    check_numbers(got.events, 3 * kRing + 7);
    CHECK(got.blobs.size() == 1);
    CHECK(reader.overwritten_events() == 3 * kRing + 7);
    REQUIRE(reader.gaps().size() == 1);
    CHECK(reader.gaps()[0].after_seq == 0);  // whole from the first one on
    CHECK(reader.gaps()[0].events == 3 * kRing + 7);
    CHECK(reader.torn_records() == 0);
    CHECK(reader.state()->dropped_events == 0);
  }
}

TEST_CASE("a reader that keeps up loses nothing, one that lags loses the oldest") {
  RingLog ring;
  LogReader reader = open_log(ring.path);
  Collected got;
  for (uint64_t round = 0; round < 10; ++round) {
    ring.write(round * kRing / 2, kRing / 2);
    read_all(reader, got, true);
    REQUIRE(reader.publish().ok());
  }
  CHECK(got.events.size() == 5 * kRing);
  CHECK(reader.overwritten_events() == 0);
  ring.write(5 * kRing, 3 * kRing);
  read_all(reader, got, true);
  CHECK(got.events.size() == 6 * kRing);
  CHECK(reader.overwritten_events() == 2 * kRing);
  CHECK(got.events.back().size == 8 * kRing - 1);
  CHECK(got.events.back().seq == 6 * kRing);
  REQUIRE(reader.gaps().size() == 1);
  CHECK(reader.gaps()[0].after_seq == 5 * kRing);
  CHECK(reader.gaps()[0].events == 2 * kRing);
}

TEST_CASE("what another reader lost before is counted by who goes on") {
  RingLog ring;
  ring.write(0, 3 * kRing);
  LogReader first = open_log(ring.path);
  Collected got;
  read_all(first, got, true);
  ring.write(3 * kRing, 10);
  LogReader second = open_log(ring.path, LogReader::Access::inspect);
  second.resume(first.position(), first.events(), 0);
  read_all(second, got, false);
  CHECK(second.events() == kRing + 10);
  CHECK(second.overwritten_events() == 2 * kRing);
  REQUIRE(second.gaps().size() == 1);
  CHECK(second.gaps()[0].after_seq == kRing);  // at or before it
}

TEST_CASE(
    "of many places where a lagging reader lost events the first are kept, and all are counted") {
  RingLog ring;
  LogReader reader = open_log(ring.path);
  Collected got;
  constexpr uint64_t kRounds = LogReader::kMostGaps + 4;
  for (uint64_t round = 0; round < kRounds; ++round) {
    ring.write(round * (kRing + 5), kRing + 5);
    read_all(reader, got, true);
  }
  CHECK(reader.overwritten_events() == kRounds * 5);
  REQUIRE(reader.gaps().size() == LogReader::kMostGaps);
  CHECK(reader.gaps()[1].after_seq == kRing);
  CHECK(reader.gaps()[1].events == 5);
}

TEST_CASE("who goes on where another reader stopped gets the rest, and all blobs") {
  RingLog ring;
  ring.log.writer.write_blob(log::BlobKind::text, 1, "first");
  ring.write(0, 50);
  LogReader reader = open_log(ring.path, LogReader::Access::inspect);
  reader.resume(20, 20, 0);
  Collected got;
  read_all(reader, got, false);
  REQUIRE(got.events.size() == 30);
  CHECK(got.events.front().seq == 21);
  CHECK(got.events.front().size == 20);
  CHECK(got.blobs.size() == 1);
}

TEST_CASE("a call that has not returned is waited for, but not until the ring comes round") {
  RingLog ring;
  const auto ticket = ring.log.writer.reserve();
  ring.log.writer.commit(ticket, numbered_event(0), false);
  ring.write(1, 10);
  LogReader reader = open_log(ring.path);
  Collected got;
  CHECK(read_all(reader, got, true) == 0);
  ring.log.writer.finish(ticket, 7);
  read_all(reader, got, true);
  REQUIRE(got.events.size() == 11);
  CHECK(got.events[0].result == 7);

  const auto slow = ring.log.writer.reserve();
  ring.log.writer.commit(slow, numbered_event(11), false);
  ring.write(12, kRing * 3 / 4);
  read_all(reader, got, true);
  REQUIRE(got.events.size() == 12 + kRing * 3 / 4);
  CHECK(got.events[11].result == kResultPending);
  CHECK(reader.torn_records() == 0);
}

TEST_CASE("a call that returns after a lap does not touch the event in its place") {
  RingLog ring;
  const auto slow = ring.log.writer.reserve();
  ring.log.writer.commit(slow, numbered_event(0), false);
  ring.write(1, kRing);  // the last one takes the slot
  ring.log.writer.finish(slow, 7);
  LogReader reader = open_log(ring.path);
  Collected got;
  read_all(reader, got, false);
  REQUIRE(got.events.size() == kRing);
  check_numbers(got.events, 1);
  CHECK(reader.overwritten_events() == 1);
}

TEST_CASE("a slot that a writer is still in is not taken from it") {
  RingLog ring;
  const auto slow = ring.log.writer.reserve();  // taken, not filled
  ring.write(1, kRing - 1);
  ring.write(kRing, 1);  // would need the slot
  CHECK(ring.log.writer.header()->dropped_events == 1);
  ring.log.writer.commit(slow, numbered_event(0), true);
  ring.write(kRing + 1, 5);
  CHECK(ring.log.writer.header()->dropped_events == 1);
  LogReader reader = open_log(ring.path);
  Collected got;
  read_all(reader, got, false);
  // The place of the dropped event still holds event 0, which is older than the ring is long.
  CHECK(got.events.size() == kRing - 1);
  CHECK(reader.torn_records() == 1);
  CHECK(got.events.back().size == kRing + 5);
}

TEST_CASE("where storage is refused the ring is as large as it got") {
  RingLog ring(4 * kRing);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit narrow = before;
  narrow.rlim_cur = log::kHeaderBytes + (kBlobs + 2 * kRing) * log::kSlotBytes;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &narrow) == 0);
  ring.write(0, 7 * kRing);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  LogReader reader = open_log(ring.path);
  Collected got;
  read_all(reader, got, false);
  REQUIRE(got.events.size() == 2 * kRing);
  check_numbers(got.events, 5 * kRing);
  CHECK(reader.overwritten_events() == 5 * kRing);
  CHECK(reader.state()->grow_errno == EFBIG);
  CHECK(reader.state()->dropped_events == 0);
}

TEST_CASE("8 threads and a reader: what is read is whole, the rest is counted") {
  constexpr int kThreads = 8;
  constexpr uint64_t kPerThread = 40'000;
  RingLog ring;
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&ring, &running, thread] {
      for (uint64_t i = 0; i < kPerThread; ++i) {
        const Event event = numbered_event(i, thread + 1);
        if (i % 3 == 0) {
          const auto ticket = ring.log.writer.reserve();
          ring.log.writer.commit(ticket, event, false);
          ring.log.writer.finish(ticket, 7);
        } else {
          ring.log.writer.write(event);
        }
      }
      --running;
    });
  }
  LogReader reader = open_log(ring.path);
  Collected got;
  while (running > 0) read_all(reader, got, true);
  for (std::thread& thread : threads) thread.join();
  read_all(reader, got, false);

  uint64_t wrong = 0;
  std::vector<int64_t> last(kThreads, -1);
  for (const Event& event : got.events) {
    Event expected = numbered_event(event.size, event.tid);
    expected.seq = event.seq;
    expected.pid = event.pid;
    expected.time_ns = event.time_ns;
    expected.result = event.result;
    const bool known_result = event.size % 3 == 0
                                  ? event.result == 7 || event.result == kResultPending
                                  : event.result == 0;
    if (!(event == expected) || !known_result || event.tid == 0 || event.tid > kThreads) {
      ++wrong;
      continue;
    }
    int64_t& previous = last[event.tid - 1];
    if (static_cast<int64_t>(event.size) <= previous) ++wrong;
    previous = static_cast<int64_t>(event.size);
  }
  CHECK(wrong == 0);
  CHECK(reader.torn_records() <= reader.state()->dropped_events);
  CHECK(got.events.size() + reader.overwritten_events() + reader.torn_records() ==
        kThreads * kPerThread);
  CHECK(got.events.size() >= kRing - reader.torn_records());
}

TEST_CASE("hostile headers of rings") {
  RingLog ring;
  ring.write(0, 10);
  log::LogHeader& header = *ring.log.writer.header();
  header.ring_first_slot = UINT64_MAX;
  CHECK(LogReader::open(ring.path, LogReader::Access::inspect).error().code == ErrorCode::kDamaged);
  header.ring_first_slot = kBlobs;
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{UINT64_MAX}}) {
    header.ring_slots = value;
    header.ring_write_pos = value;
    LogReader reader = open_log(ring.path, LogReader::Access::inspect);
    Collected got;
    read_all(reader, got, false);
    read_all(reader, got, true);
    CHECK(got.events.size() <= kRing);
  }
}
