// What one event costs the recorded program: from a filled Event to the committed slot. The log
// lies in memory and has its storage already; growth (once per 16384 events) is measured apart.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "log/log_writer.h"
#include "log/shared_region.h"

namespace {

using namespace fragscope;

constexpr uint64_t kSlots = 32 * log::kChunkSlots;
constexpr uint64_t kBytes = log::kHeaderBytes + kSlots * log::kSlotBytes;

std::unique_ptr<log::SharedRegion> new_region(uint64_t initial_bytes) {
  static int number = 0;
  const std::string path =
      "/dev/shm/fragscope-bench-" + std::to_string(getpid()) + "-" + std::to_string(++number);
  auto region = log::SharedRegion::create(path, initial_bytes, kBytes);
  unlink(path.c_str());
  return region ? std::make_unique<log::SharedRegion>(std::move(region).value()) : nullptr;
}

Event sample_event() {
  Event event;
  event.time_ns = 123456789;
  event.tid = 42;
  event.kind = EventKind::alloc;
  event.device = 0;
  event.address = 0x200000000000;
  event.size = event.requested = 2097152;
  event.stack = 7;
  return event;
}

std::unique_ptr<log::SharedRegion> region;
log::LogWriter writer;

void set_up(const benchmark::State&) {
  region = new_region(kBytes);
  if (region) writer = log::LogWriter(region->data(), region->fd(), kSlots, kSlots);
}
void tear_down(const benchmark::State&) { region.reset(); }

// One thread plays the collector as well: it gives the slots back every 1024 events.
void write_event(benchmark::State& state) {
  if (!region) return state.SkipWithError("no shared memory");
  log::LogWriter mine = writer;
  const Event event = sample_event();
  uint64_t count = 0;
  for (auto _ : state) {
    mine.write(event);
    if (++count % 1024 == 0 && state.thread_index() == 0) {
      const uint64_t written = mine.header()->write_pos.load(std::memory_order_relaxed);
      mine.header()->read_pos.store(written, std::memory_order_release);
    }
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["dropped"] = benchmark::Counter(
      static_cast<double>(mine.header()->dropped_events.load()), benchmark::Counter::kAvgThreads);
}
BENCHMARK(write_event)->Setup(set_up)->Teardown(tear_down)->Threads(1)->Threads(2)->UseRealTime();

// A free: committed before the call, its result filled in after it.
void write_event_in_two_halves(benchmark::State& state) {
  if (!region) return state.SkipWithError("no shared memory");
  const Event event = sample_event();
  uint64_t count = 0;
  for (auto _ : state) {
    const log::LogWriter::Ticket ticket = writer.reserve();
    writer.commit(ticket, event, false);
    writer.finish(ticket, 0);
    if (++count % 1024 == 0) {
      writer.header()->read_pos.store(writer.header()->write_pos.load(), std::memory_order_release);
    }
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(write_event_in_two_halves)->Setup(set_up)->Teardown(tear_down);

// A chunk of storage: one system call per 16384 events.
void grow_by_one_chunk(benchmark::State& state) {
  for (auto _ : state) {
    state.PauseTiming();
    const auto fresh = new_region(log::kHeaderBytes);
    if (!fresh) return state.SkipWithError("no shared memory");
    state.ResumeTiming();
    benchmark::DoNotOptimize(
        log::reserve_storage(fresh->fd(), log::kHeaderBytes, log::kChunkSlots * log::kSlotBytes));
  }
}
BENCHMARK(grow_by_one_chunk)->Iterations(64);

}  // namespace
