// The demo's case, recomputed: 98 MiB do not fit on a 12 GiB card by default, and do with a limit.
#include "tools/demo/training_run.h"

#include "base/bytes.h"
#include "model/caching_allocator.h"
#include "model/simulated_segments.h"
#include "tests/support/catch.h"

using namespace fragscope;

namespace {

class ModelledTensors final : public demo::TensorMemory {
 public:
  explicit ModelledTensors(const model::AllocatorConfig& config)
      : allocator_(config, *model::find_version_profile("").profile, segments_) {}

  std::optional<uint64_t> allocate(uint64_t bytes) override {
    const model::MallocResult result = allocator_.malloc(bytes);
    return result.ok() ? std::optional(result.address) : std::nullopt;
  }
  void release(uint64_t address) override { allocator_.free(address); }
  std::string end_step() override { return ""; }
  std::string failure() const override { return ""; }
  const model::OomFacts& oom() const { return allocator_.last_oom(); }

 private:
  model::LocalCapacity capacity_{12 * kGiB};
  model::DeviceMemory memory_{0, capacity_};
  model::SimulatedSegments segments_{memory_, capacity_, 12 * kGiB};
  model::CachingAllocator allocator_;
};

// Steps that ran; all of them when nothing failed.
size_t steps_done(ModelledTensors& tensors) {
  demo::TrainingRun run({}, tensors);
  REQUIRE(run.build());
  size_t done = 0;
  while (done < demo::kLengths.size() && run.step(demo::kLengths[done])) ++done;
  return done;
}

model::AllocatorConfig with_limit(uint64_t bytes) {
  model::AllocatorConfig config;
  config.max_split_size = bytes;
  return config;
}

}  // namespace

TEST_CASE("by default the longest batch fails for 98 MiB although gigabytes are unused") {
  ModelledTensors tensors{model::AllocatorConfig{}};
  CHECK(steps_done(tensors) == 12);
  CHECK(tensors.oom().segment == 98 * kMiB);
  CHECK(tensors.oom().device_free < 98 * kMiB);
  CHECK(tensors.oom().reserved - tensors.oom().allocated > 4 * kGiB);
}

TEST_CASE("under a split limit the same requests fit") {
  const uint64_t limit = GENERATE(20, 32, 64);
  CAPTURE(limit);
  ModelledTensors tensors{with_limit(limit * kMiB)};
  CHECK(steps_done(tensors) == demo::kLengths.size());
}

TEST_CASE("a limit above the large tensors changes nothing") {
  ModelledTensors tensors{with_limit(512 * kMiB)};
  CHECK(steps_done(tensors) == 12);
}
