// Trace files: events per second both ways, and bytes per event on disk.
#include <benchmark/benchmark.h>

#include "tests/bench/training_events.h"
#include "trace/trace_reader.h"
#include "trace/trace_writer.h"

namespace {

using namespace fragscope;

const std::vector<Event>& events() {
  static const std::vector<Event> list = bench::training_events(200'000);
  return list;
}

std::vector<std::byte> encode() {
  trace::MemorySink sink;
  trace::ProcessInfo process;
  process.pid = 4711;
  auto writer = trace::TraceWriter::start(sink, process);
  if (!writer) return {};
  for (const Event& event : events()) {
    if (!writer->add_event(event)) return {};
  }
  if (!writer->seal(process, {})) return {};
  return sink.bytes();
}

void encode_events(benchmark::State& state) {
  events();
  size_t bytes = 0;
  for (auto _ : state) bytes = encode().size();
  if (bytes == 0) return state.SkipWithError("nothing was written");
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(events().size()));
  state.counters["bytes/event"] = static_cast<double>(bytes) / static_cast<double>(events().size());
}
BENCHMARK(encode_events)->Unit(benchmark::kMillisecond);

void decode_events(benchmark::State& state) {
  const std::vector<std::byte> bytes = encode();
  auto reader = trace::TraceReader::open_bytes(bytes, "bench");
  if (!reader) return state.SkipWithError(reader.error().text.c_str());
  size_t count = 0;
  for (auto _ : state) {
    count = 0;
    reader->rewind();
    for (auto batch = reader->next_batch(); !batch.empty(); batch = reader->next_batch()) {
      count += batch.size();
      benchmark::DoNotOptimize(batch.data());
    }
  }
  if (count != events().size()) return state.SkipWithError("events are missing");
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(count));
}
BENCHMARK(decode_events)->Unit(benchmark::kMillisecond);

}  // namespace
