// Events as a training loop makes them: the demo's program on the model, recorded in memory.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "event/event.h"
#include "model/caching_allocator.h"
#include "model/simulated_segments.h"
#include "tools/demo/training_run.h"

namespace fragscope::bench {

// Turns requests into block events of one process: 1 to 9 µs apart, from 500 call stacks.
class RecordingTensors final : public demo::TensorMemory {
 public:
  explicit RecordingTensors(std::vector<Event>& events)
      : events_(events),
        allocator_(split_limit(), *model::find_version_profile("").profile, segments_) {}

  std::optional<uint64_t> allocate(uint64_t bytes) override {
    const model::MallocResult result = allocator_.malloc(bytes);
    if (!result.ok()) return std::nullopt;
    Event& event = add(EventKind::alloc, result.address);
    event.size = result.block_size;
    event.requested = bytes;
    return result.address;
  }
  void release(uint64_t address) override {
    allocator_.free(address);
    add(EventKind::free_requested, address);
    add(EventKind::free_completed, address);
  }
  std::string end_step() override { return ""; }
  std::string failure() const override { return ""; }

 private:
  static model::AllocatorConfig split_limit() {
    model::AllocatorConfig config;
    config.max_split_size = 20 * kMiB;
    return config;
  }
  Event& add(EventKind kind, uint64_t address) {
    Event event;
    event.seq = events_.size() + 1;
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    event.time_ns =
        (events_.empty() ? 1'000'000'000 : events_.back().time_ns) + 1000 + (random_ >> 33) % 8000;
    event.pid = event.tid = 4711;
    event.kind = kind;
    event.api = 1;
    event.device = 0;
    event.stream = 0;
    event.address = address;
    event.stack = static_cast<uint32_t>((random_ >> 40) % 500 + 1);
    event.flags = kFlagSourceAdaptor;
    event.aux = static_cast<uint64_t>(allocator_.stats().allocated_bytes.all.current);
    event.aux2 = static_cast<uint64_t>(allocator_.stats().reserved_bytes.all.current);
    events_.push_back(event);
    return events_.back();
  }

  std::vector<Event>& events_;
  uint64_t random_ = events_.size() + 1;
  model::LocalCapacity capacity_{12 * kGiB};
  model::DeviceMemory memory_{0, capacity_};
  model::SimulatedSegments segments_{memory_, capacity_, 12 * kGiB};
  model::CachingAllocator allocator_;
};

// At least `count` events; whole runs of the demo, one after another, no two of the same shape.
inline std::vector<Event> training_events(size_t count) {
  std::vector<Event> events;
  while (events.size() < count) {
    RecordingTensors tensors(events);
    demo::ModelShape shape;
    shape.width = 512 + events.size() / 1000 % 64 * 8;
    shape.layers = 8 + events.size() / 100 % 9;
    demo::TrainingRun run(shape, tensors);
    run.build();
    for (const uint64_t length : demo::kLengths) run.step(length);
  }
  return events;
}

}  // namespace fragscope::bench
