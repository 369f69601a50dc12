// Replay and metrics: decoded events per second of a recorded training-shaped run with one device.
#include <benchmark/benchmark.h>

#include "metrics/process_metrics.h"
#include "replay/event_stream.h"
#include "replay/replayer.h"
#include "tests/support/recorded_model.h"

namespace {

using namespace fragscope;

const std::vector<Event>& events() {
  static const std::vector<Event> recorded = [] {
    test::RecordedModel model;
    test::train(model, 3000, 3, false);
    return model.events();
  }();
  return recorded;
}

replay::ProcessFacts facts() {
  replay::ProcessFacts result;
  result.block_source = replay::BlockSource::adaptor;
  result.properties["torch_version"] = "2.15";
  return result;
}

void count(benchmark::State& state) {
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(events().size()));
}

void verify(benchmark::State& state) {
  replay::VectorStream stream(events());
  for (auto _ : state) benchmark::DoNotOptimize(replay::replay_process(stream, facts(), {}));
  count(state);
}

// Verify and what-if: a what-if includes the check of its assumptions.
void verify_and_what_if(benchmark::State& state) {
  replay::VectorStream stream(events());
  replay::ReplayOptions options;
  options.max_split_size_bytes = 64 * kMiB;
  for (auto _ : state) benchmark::DoNotOptimize(replay::replay_process(stream, facts(), options));
  count(state);
}

void measure(benchmark::State& state) {
  replay::VectorStream stream(events());
  for (auto _ : state) benchmark::DoNotOptimize(metrics::measure_process(stream, facts()));
  count(state);
}

BENCHMARK(verify);
BENCHMARK(verify_and_what_if);
BENCHMARK(measure);

}  // namespace
