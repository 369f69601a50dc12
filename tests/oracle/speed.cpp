#include "tests/oracle/speed.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "model/caching_allocator.h"
#include "model/device_memory.h"
#include "model/simulated_segments.h"
#include "tests/oracle/scripted_events.h"

// Defined by libc10_cuda in every release, declared by no header.
namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*answer)(c10::DeviceIndex));
}

namespace fragscope::oracle {
namespace {

namespace torch = c10::cuda::CUDACachingAllocator;
using model::CommandKind;

struct Step {
  uint64_t bytes = 0;  // 0: a free
  uint64_t stream = 0;
  cudaStream_t handle = nullptr;  // the library's name of `stream`
  uint32_t slot = 0;
};

// Slots are used again, so that the caller's own tables stay small.
bool read_steps(const model::CommandList& list, std::vector<Step>& steps, uint32_t& slots) {
  std::vector<uint32_t> slot_of(list.ids.size());
  std::vector<uint32_t> unused;
  for (const model::Command& command : list.commands) {
    const bool frees = command.kind == CommandKind::kFree;
    if ((command.kind != CommandKind::kAlloc && !frees) || command.device != 0) return false;
    if (frees) {
      unused.push_back(slot_of[command.id]);
      steps.push_back({0, 0, nullptr, slot_of[command.id]});
      continue;
    }
    if (unused.empty()) unused.push_back(slots++);
    slot_of[command.id] = unused.back();
    unused.pop_back();
    const uint64_t stream = command.stream.value_or(0);
    steps.push_back({std::max<uint64_t>(command.size, 1), stream,
                     static_cast<cudaStream_t>(stream_handle(stream)), slot_of[command.id]});
  }
  return !steps.empty() && unused.size() == slots;
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

class Model {
 public:
  Model(const model::VersionProfile& profile, uint64_t bytes)
      : capacity_(bytes),
        memory_(0, capacity_),
        segments_(memory_, capacity_, bytes),
        allocator_({}, profile, segments_) {}

  // `places`: of each allocation, in order.
  double run(const std::vector<Step>& steps, uint32_t slots, std::vector<uint64_t>& places) {
    std::vector<model::BlockIndex> blocks(slots);
    uint64_t* place = places.data();
    const double before = cpu_seconds();
    for (const Step& step : steps) {
      if (step.bytes == 0) {
        allocator_.free_block(blocks[step.slot]);
        continue;
      }
      const model::MallocResult block = allocator_.malloc(step.bytes, step.stream);
      if (!block.ok()) return -1;
      blocks[step.slot] = block.block;
      *place++ = block.address;
    }
    return cpu_seconds() - before;
  }

 private:
  model::LocalCapacity capacity_;
  model::DeviceMemory memory_;
  model::SimulatedSegments segments_;
  model::CachingAllocator allocator_;
};

// Seconds that the library's calls spend in the runtime: each allocation asks for the device.
double run_runtime(const std::vector<Step>& steps) {
  int device = 0;
  const double before = cpu_seconds();
  for (const Step& step : steps) {
    if (step.bytes != 0 && cudaGetDevice(&device) != cudaSuccess) return -1;
  }
  return cpu_seconds() - before;
}

double run_library(const std::vector<Step>& steps, uint32_t slots, std::vector<uint64_t>& places) {
  std::vector<void*> blocks(slots);
  uint64_t* place = places.data();
  const double before = cpu_seconds();
  for (const Step& step : steps) {
    if (step.bytes == 0) {
      torch::raw_delete(blocks[step.slot]);
      continue;
    }
    blocks[step.slot] = torch::raw_alloc_with_stream(step.bytes, step.handle);
    *place++ = reinterpret_cast<uint64_t>(blocks[step.slot]);
  }
  return cpu_seconds() - before;
}

void report(const char* who, size_t calls, const std::vector<double>& seconds) {
  double mean = 0;
  double deviation = 0;
  for (const double s : seconds) mean += s / static_cast<double>(seconds.size());
  for (const double s : seconds) deviation += (s - mean) * (s - mean);
  deviation = std::sqrt(deviation / static_cast<double>(std::max<size_t>(seconds.size() - 1, 1)));
  std::printf("%-13s %7.2f M calls/s, %6.1f ns/call, spread %.1f %%\n", who,
              static_cast<double>(calls) / mean / 1e6, mean / static_cast<double>(calls) * 1e9,
              100 * deviation / mean);
}

}  // namespace

int compare_speed(const model::CommandList& list, const model::VersionProfile& profile,
                  uint64_t device_memory, unsigned repeats) {
  std::vector<Step> steps;
  uint32_t slots = 0;
  if (!read_steps(list, steps, slots)) {
    std::fprintf(stderr, "oracle: speed wants a list of alloc and free alone, that frees all\n");
    return 3;
  }
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  torch::get()->init(1);
  Model model(profile, device_memory);
  std::vector<uint64_t> ours(steps.size());
  std::vector<uint64_t> theirs(steps.size());
  std::vector<double> model_seconds;
  std::vector<double> library_seconds;
  std::vector<double> runtime_seconds;
  for (unsigned i = 0; i < repeats; ++i) {
    model_seconds.push_back(model.run(steps, slots, ours));
    library_seconds.push_back(run_library(steps, slots, theirs));
    runtime_seconds.push_back(run_runtime(steps));
    if (runtime_seconds.back() < 0 || model_seconds.back() < 0 || ours != theirs) {
      std::fprintf(stderr, "oracle: the model and the library gave different addresses\n");
      return 1;
    }
  }
  report("libc10_cuda", steps.size(), library_seconds);
  report("model", steps.size(), model_seconds);
  report("cudaGetDevice", steps.size(), runtime_seconds);
  double ratio = 0;
  double without = 0;
  for (unsigned i = 0; i < repeats; ++i) {
    ratio += library_seconds[i] / model_seconds[i] / repeats;
    without += (library_seconds[i] - runtime_seconds[i]) / model_seconds[i] / repeats;
  }
  std::printf(
      "model against libc10_cuda of torch %s: %.1f times as fast (mean of %u pairs), %.1f "
      "times without the runtime's share\n",
      profile.name.data(), ratio, repeats, without);
  return 0;
}

}  // namespace fragscope::oracle
