// Replay of a recorded training trace, repeated to many events: events per second and core, with
// the decoding of the trace, and the memory it takes.
//
// usage: replay_speed [--verify-only] TRACE [EVENTS [REPETITIONS [OUTPUT]]]
// --verify-only: no what-if. OUTPUT: the repeated trace is written there as well.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

#include "replay/process_facts.h"
#include "replay/replayer.h"
#include "tests/bench/repeated_trace.h"

namespace {

using namespace fragscope;

struct Spread {
  double best = 0;
  double mean = 0;
  double deviation = 0;
};

Spread measure(int repetitions, const std::function<void()>& body) {
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) {
    // CPU time of this thread: other programs on the machine do not count.
    timespec before{}, after{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    body();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    seconds.push_back(static_cast<double>(after.tv_sec - before.tv_sec) +
                      static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-9);
  }
  Spread spread;
  spread.best = *std::min_element(seconds.begin(), seconds.end());
  for (const double s : seconds) spread.mean += s / repetitions;
  for (const double s : seconds) spread.deviation += (s - spread.mean) * (s - spread.mean);
  spread.deviation = std::sqrt(spread.deviation / std::max(repetitions - 1, 1));
  return spread;
}

void report(const char* what, size_t events, const Spread& spread) {
  const double count = static_cast<double>(events);
  std::printf("%-28s %7.1f M events/s (best %.1f), %.1f ns/event, spread %.1f %%\n", what,
              count / spread.mean / 1e6, count / spread.best / 1e6, spread.mean / count * 1e9,
              100 * spread.deviation / spread.mean);
}

// What the model's books take when most blocks are allocated, with the map of addresses that a
// verify needs.
void report_memory(const bench::CallCollector& calls) {
  test::RecordedModel recorded;
  model::CachingAllocator& allocator = recorded.allocator();
  allocator.set_observer(nullptr);
  std::vector<uint64_t> addresses(calls.allocations());
  const size_t empty = allocator.book_bytes();
  size_t live = 0;
  size_t most_live = 0;
  size_t bytes = 0;
  for (const bench::ListedCall& call : calls.list()) {
    if (call.bytes == 0) {
      allocator.free(addresses[call.number]);
      --live;
      continue;
    }
    addresses[call.number] = allocator.malloc(call.bytes, call.stream).address;
    if (++live < most_live) continue;
    most_live = live;
    bytes = allocator.book_bytes() - empty;
  }
  std::printf("memory of the model              %zu bytes for %zu live blocks: %.1f bytes/block\n",
              bytes, most_live, static_cast<double>(bytes) / static_cast<double>(most_live));
}

}  // namespace

int main(int argc, char** argv) {
  const bool verify_only = argc > 1 && std::string_view(argv[1]) == "--verify-only";
  if (verify_only) {
    ++argv;
    --argc;
  }
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: replay_speed [--verify-only] TRACE [EVENTS [REPETITIONS [OUTPUT]]]\n");
    return 2;
  }
  auto recorded = trace::TraceReader::open_file(argv[1]);
  if (!recorded) {
    std::fprintf(stderr, "%s\n", recorded.error().text.c_str());
    return 3;
  }
  const size_t wanted = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 10'000'000;
  const int repetitions = argc > 3 ? std::atoi(argv[3]) : 5;
  replay::TraceStream original(*recorded);
  const bench::CallCollector calls(original);
  std::vector<std::byte> bytes;
  size_t events = 0;
  {
    const std::vector<Event> repeated = bench::repeated_events(calls, wanted);
    events = repeated.size();
    bytes = bench::trace_bytes(repeated);
  }
  if (argc > 4) {
    std::ofstream(argv[4], std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
  }
  std::printf("%s: %zu calls, repeated to %zu events, %.2f bytes/event\n", argv[1],
              calls.list().size(), events,
              static_cast<double>(bytes.size()) / static_cast<double>(events));
  report_memory(calls);
  auto reader = trace::TraceReader::open_bytes(std::move(bytes), "repeated");
  if (!reader) return 3;
  report("decode", events, measure(repetitions, [&] {
           reader->rewind();
           while (!reader->next_batch().empty()) {
           }
         }));
  replay::TraceStream stream(*reader);
  const replay::ProcessFacts facts = replay::facts_of(reader->process());
  bool perfect = true;
  report("verify", events, measure(repetitions, [&] {
           const auto result = replay::replay_process(stream, facts, {});
           perfect = perfect && result && result->perfect() && result->devices.size() == 1;
         }));
  replay::ReplayOptions what_if;
  what_if.alloc_conf = "max_split_size_mb:128";
  if (!verify_only) {
    report("verify and what-if", events, measure(repetitions, [&] {
             const auto result = replay::replay_process(stream, facts, what_if);
             perfect = perfect && result && result->mode == replay::ReplayMode::what_if;
           }));
  }
  if (!perfect) std::fprintf(stderr, "replay_speed: a prediction was wrong\n");
  return perfect ? 0 : 1;
}
