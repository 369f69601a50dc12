// The allocator model: requests per second of the demo's training loop (mallocs and frees).
#include <benchmark/benchmark.h>

#include "base/bytes.h"
#include "model/caching_allocator.h"
#include "model/simulated_segments.h"
#include "tests/bench/training_events.h"

namespace {

using namespace fragscope;

// A request: bytes to allocate, or the number of the allocation to free.
struct Request {
  uint64_t bytes = 0;
  size_t frees = 0;
};

// One run of the demo as a list of requests.
class RequestList final : public demo::TensorMemory {
 public:
  std::optional<uint64_t> allocate(uint64_t bytes) override {
    requests.push_back({bytes, 0});
    return allocations++;
  }
  void release(uint64_t address) override { requests.push_back({0, address}); }
  std::string end_step() override { return ""; }
  std::string failure() const override { return ""; }

  std::vector<Request> requests;
  size_t allocations = 0;
};

const RequestList& requests() {
  static const RequestList list = [] {
    RequestList tensors;
    demo::TrainingRun run({}, tensors);
    run.build();
    for (int round = 0; round < 10; ++round) {
      for (const uint64_t length : demo::kLengths) run.step(length);
    }
    return tensors;
  }();
  return list;
}

// Argument: max_split_size in MiB; 0 = unlimited. The device is large: no request fails.
void malloc_and_free(benchmark::State& state) {
  model::AllocatorConfig config;
  if (state.range(0) > 0) config.max_split_size = static_cast<uint64_t>(state.range(0)) * kMiB;
  const RequestList& list = requests();
  std::vector<model::BlockIndex> blocks(list.allocations);
  for (auto _ : state) {
    model::LocalCapacity capacity(model::LocalCapacity::kUnlimited);
    model::DeviceMemory memory(0, capacity);
    model::SimulatedSegments segments(memory, capacity, 1024 * kGiB);
    model::CachingAllocator allocator(config, *model::find_version_profile("").profile, segments);
    size_t next = 0;
    for (const Request& request : list.requests) {
      if (request.bytes > 0) {
        blocks[next++] = allocator.malloc(request.bytes).block;
      } else {
        allocator.free_block(blocks[request.frees]);
      }
    }
    benchmark::DoNotOptimize(allocator.stats());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(list.requests.size()));
}
BENCHMARK(malloc_and_free)->ArgName("max_split_mb")->Arg(0)->Arg(32)->Unit(benchmark::kMillisecond);

}  // namespace
