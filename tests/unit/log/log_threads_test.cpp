// Writers in many threads, a reader beside them, a writer that is killed.
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "tests/unit/log/log_fixture.h"

using namespace fragscope;
using namespace fragscope::log_test;
using log::LogReader;

namespace {

constexpr int kThreads = 8;
constexpr uint64_t kPerThread = 20'000;

// One thread's events, recognisable in every field by (thread, number).
Event event_of(uint32_t thread, uint64_t number) {
  Event event = numbered_event(number, thread + 1);
  event.aux = number << 8 | thread;
  event.aux2 = ~event.aux;
  return event;
}

bool is_whole(const Event& event) {
  Event expected = event_of(event.tid - 1, event.size);
  expected.seq = event.seq;
  expected.pid = event.pid;
  expected.time_ns = event.time_ns;  // made monotone by the reader
  expected.result = event.result;
  return event == expected && (event.result == 0 || event.result == 7);
}

// Every third event is finished late, every hundredth is accompanied by a blob of its own id.
void write_thread(log::LogWriter& writer, uint32_t thread) {
  for (uint64_t i = 0; i < kPerThread; ++i) {
    const Event event = event_of(thread, i);
    if (i % 3 == 0) {
      const auto ticket = writer.reserve();
      writer.commit(ticket, event, false);
      writer.finish(ticket, 7);
    } else {
      writer.write(event);
    }
    if (i % 100 == 0) {
      const auto id = static_cast<uint32_t>(i * kThreads + thread);
      writer.write_blob(log::BlobKind::text, id, std::string(id % 500, 'b'));
    }
  }
}

struct Checked final : log::LogConsumer {
  uint64_t events = 0;
  uint64_t blobs = 0;
  uint64_t wrong = 0;
  uint64_t disordered = 0;
  int64_t last[kThreads]{-1, -1, -1, -1, -1, -1, -1, -1};

  void on_event(const Event& event) override {
    ++events;
    if (event.tid == 0 || event.tid > kThreads || !is_whole(event) || event.seq != events) {
      ++wrong;
      return;
    }
    auto& previous = last[event.tid - 1];
    if (static_cast<int64_t>(event.size) <= previous) ++disordered;
    previous = static_cast<int64_t>(event.size);
  }
  void on_blob(log::BlobKind, uint32_t id, std::span<const std::byte> bytes) override {
    ++blobs;
    if (bytes.size() != id % 500) ++wrong;
  }
};

// Returns what a reader beside the threads got; the log's own count of drops in `dropped`.
Checked run_threads(uint64_t capacity, uint64_t& dropped, uint64_t& written) {
  TemporaryDirectory temporary("log-threads");
  const std::string path = temporary.path / "a.fslog";
  Log log(path, capacity);
  LogReader reader = open_log(path);
  Checked checked;
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      write_thread(log.writer, thread);
      running.fetch_sub(1);
    });
  }
  while (running.load() != 0) {
    read_all(reader, checked, true);
    REQUIRE(reader.publish().ok());
  }
  for (std::thread& thread : threads) thread.join();
  read_all(reader, checked, true);
  read_all(reader, checked, false);
  CHECK(reader.torn_records() == 0);
  dropped = log.writer.header()->dropped_events;
  written = log.writer.header()->write_pos;
  CHECK(reader.position() == written);
  return checked;
}

}  // namespace

TEST_CASE("8 threads, a ring that is large enough: every record, whole and in order") {
  uint64_t dropped = 1;
  uint64_t written = 0;
  const Checked checked = run_threads(16 * log::kChunkSlots, dropped, written);
  CHECK(dropped == 0);
  CHECK(checked.events == kThreads * kPerThread);
  CHECK(checked.blobs == kThreads * kPerThread / 100);
  CHECK(checked.wrong == 0);
  CHECK(checked.disordered == 0);
}

TEST_CASE("8 threads, a ring far too small: nothing is lost but what is counted") {
  uint64_t dropped = 0;
  uint64_t written = 0;
  const Checked checked = run_threads(kSmallRing, dropped, written);
  CHECK(checked.wrong == 0);
  CHECK(checked.disordered == 0);
  CHECK(checked.events <= kThreads * kPerThread);
  // Every event was read or counted; dropped parts of blobs are counted too, one for each blob.
  CHECK(checked.events + dropped >= kThreads * kPerThread);
  CHECK(checked.events + dropped <= kThreads * kPerThread + kThreads * kPerThread / 100);
}

TEST_CASE("a writer killed in the middle: all that was committed before is there") {
  TemporaryDirectory temporary("log-killed");
  for (int round = 0; round < 10; ++round) {
    const std::string path = temporary.path / (std::to_string(round) + ".fslog");
    // Committed events, counted in memory that outlives the child.
    auto* committed = static_cast<std::atomic<uint64_t>*>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    REQUIRE(committed != MAP_FAILED);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      Log log(path, 64 * log::kChunkSlots);
      for (uint64_t i = 0;; ++i) {
        log.writer.write(event_of(0, i));
        committed->store(i + 1, std::memory_order_release);
      }
    }
    const uint64_t enough = 1000 + 7919 * static_cast<uint64_t>(round);
    while (committed->load(std::memory_order_acquire) < enough) std::this_thread::yield();
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    LogReader reader = open_log(path, LogReader::Access::inspect);
    Checked checked;
    read_all(reader, checked, false);
    const auto state = reader.state();
    REQUIRE(state.ok());
    CHECK(checked.wrong == 0);
    CHECK(checked.disordered == 0);
    CHECK(checked.events + state->dropped_events >= committed->load());
    CHECK(checked.events + reader.torn_records() == state->write_pos);
    CHECK(reader.torn_records() <= 1);
    ::munmap(committed, 4096);
  }
}

TEST_CASE("a limit on file sizes: drops are counted, no signal arrives") {
  TemporaryDirectory temporary("log-limit");
  const std::string path = temporary.path / "a.fslog";
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit limit{2 << 20, 2 << 20};  // one chunk fits, a second does not
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
    auto region =
        log::SharedRegion::create(path, log::kHeaderBytes + log::kChunkSlots * log::kSlotBytes,
                                  log::kHeaderBytes + 8 * log::kChunkSlots * log::kSlotBytes);
    if (!region) ::_exit(2);
    log::LogWriter writer(region->data(), region->fd(), 8 * log::kChunkSlots, log::kChunkSlots);
    for (uint64_t i = 0; i < 50'000; ++i) writer.write(event_of(0, i));
    const auto refused = log::SharedRegion::create(path + "2", 4 << 20, 4 << 20);
    ::_exit(refused.ok() || refused.error().code != ErrorCode::kNoSpace ? 3 : 0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK_FALSE(fs::exists(path + "2"));
  LogReader reader = open_log(path);
  Checked checked;
  read_all(reader, checked, false);
  const auto state = reader.state();
  REQUIRE(state.ok());
  CHECK(state->grow_errno == EFBIG);
  CHECK(state->dropped_events > 0);
  CHECK(checked.events > 0);
  CHECK(checked.events + state->dropped_events == 50'000);
  CHECK(checked.wrong == 0);
  CHECK(reader.torn_records() == 0);
}
