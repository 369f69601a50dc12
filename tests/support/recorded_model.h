// An allocator model that records itself: the events that a process with PyTorch's allocator would
// leave, as the trace tracker (adaptor), the c10 reports (report) or fragscope_api.h (api) tell
// them. Synthetic input for replay and metrics.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "event/event.h"
#include "model/caching_allocator.h"
#include "model/device_memory.h"
#include "model/simulated_segments.h"

namespace fragscope::test {

enum class RecordAs : uint8_t { adaptor, report };

struct RecordSettings {
  RecordAs source = RecordAs::adaptor;
  std::string conf;
  std::string version = "2.15";
  uint64_t capacity = model::LocalCapacity::kUnlimited;
  int device = 0;
  model::SplitRule split_rule = model::SplitRule::kReleased;
  uint32_t pid = 100;
};

// Driver calls go through it, so that refusals are recorded as well.
class RecordingProvider final : public model::SegmentProvider {
 public:
  RecordingProvider(const RecordSettings& settings, std::vector<Event>& events)
      : settings_(settings),
        events_(events),
        capacity_(settings.capacity),
        memory_(settings.device, capacity_),
        segments_(memory_, capacity_, settings.capacity) {}

  std::optional<uint64_t> device_malloc(uint64_t bytes) override {
    const auto address = segments_.device_malloc(bytes);
    Event event = next(EventKind::device_alloc);
    event.size = event.requested = bytes;
    event.stream = 0;
    event.result = address ? 0 : 2;
    if (address) event.address = *address;
    events_.push_back(event);
    return address;
  }
  void device_free(uint64_t address, uint64_t bytes) override {
    Event event = next(EventKind::device_free);
    event.address = address;
    events_.push_back(event);
    segments_.device_free(address, bytes);
  }
  model::DeviceMemoryInfo memory_info() override { return segments_.memory_info(); }
  std::optional<uint64_t> reserve(uint64_t bytes) override { return segments_.reserve(bytes); }
  bool map(uint64_t address, uint64_t bytes) override {
    if (segments_.map(address, bytes)) return true;
    Event event = next(EventKind::phys_create);
    event.size = event.requested = model::kDevicePage;
    event.result = 2;
    events_.push_back(event);
    return false;
  }
  void unmap(uint64_t address, uint64_t bytes) override { segments_.unmap(address, bytes); }
  void release(uint64_t address, uint64_t bytes) override { segments_.release(address, bytes); }

  Event next(EventKind kind) {
    Event event;
    event.kind = kind;
    event.seq = events_.size() + 1;
    event.time_ns = 1000 * event.seq;
    event.pid = settings_.pid;
    event.tid = settings_.pid;
    event.device = settings_.device;
    return event;
  }

 private:
  const RecordSettings& settings_;
  std::vector<Event>& events_;
  model::LocalCapacity capacity_;
  model::DeviceMemory memory_;
  model::SimulatedSegments segments_;
};

class RecordedModel final : private model::TraceObserver {
 public:
  explicit RecordedModel(RecordSettings settings = {})
      : settings_(std::move(settings)),
        profile_(*model::find_version_profile(settings_.version).profile),
        provider_(settings_, events_),
        allocator_(model::parse_config(settings_.conf, profile_).value(), with_rule(), provider_) {
    allocator_.set_observer(this);
  }
  RecordedModel(const RecordedModel&) = delete;
  RecordedModel& operator=(const RecordedModel&) = delete;

  // 0: out of memory.
  uint64_t alloc(uint64_t requested, uint64_t stream = 0) {
    const model::MallocResult result = allocator_.malloc(requested, stream);
    if (!result.ok()) return 0;
    Event event = provider_.next(EventKind::alloc);
    event.flags = kFlagSourceReport;
    event.address = result.address;
    event.size = result.block_size;
    if (settings_.source == RecordAs::adaptor) {
      event.flags = kFlagSourceAdaptor;
      event.requested = requested;
      event.stream = stream;
    }
    add_totals(event);
    events_.push_back(event);
    return result.address;
  }
  void free(uint64_t address) {
    allocator_.free(address);
    if (settings_.source == RecordAs::adaptor) return;
    Event event = provider_.next(EventKind::free_requested);
    event.flags = kFlagSourceReport;
    event.address = address;
    add_totals(event);
    events_.push_back(event);
  }
  void empty_cache() { allocator_.empty_cache(); }
  model::CachingAllocator& allocator() { return allocator_; }
  std::vector<Event>& events() { return events_; }
  // Puts an event of the driver plane between the others.
  Event& driver(EventKind kind) {
    events_.push_back(provider_.next(kind));
    return events_.back();
  }

 private:
  const model::VersionProfile& with_rule() {
    profile_.split_rule = settings_.split_rule;
    return profile_;
  }
  void add_totals(Event& event) const {
    event.aux = static_cast<uint64_t>(allocator_.stats().allocated_bytes.all.current);
    event.aux2 = static_cast<uint64_t>(allocator_.stats().reserved_bytes.all.current);
  }
  // The tracker's entries; alloc() itself adds the block's size to its own.
  void on_entry(const model::TraceEntry& entry) override {
    using model::TraceAction;
    if (settings_.source == RecordAs::report && entry.action != TraceAction::kOom) return;
    Event event = provider_.next(EventKind::none);
    event.flags = settings_.source == RecordAs::report ? kFlagSourceReport : kFlagSourceAdaptor;
    event.stream = entry.stream;
    event.address = entry.address;
    switch (entry.action) {
      case TraceAction::kFreeRequested:
      case TraceAction::kFreeCompleted:
        event.kind = entry.action == TraceAction::kFreeRequested ? EventKind::free_requested
                                                                 : EventKind::free_completed;
        event.requested = entry.size;
        break;
      case TraceAction::kSegmentAlloc:
      case TraceAction::kSegmentFree:
        event.kind = entry.action == TraceAction::kSegmentAlloc ? EventKind::segment_alloc
                                                                : EventKind::segment_free;
        event.size = entry.size;
        break;
      case TraceAction::kSegmentMap:
      case TraceAction::kSegmentUnmap:
        event.kind = entry.action == TraceAction::kSegmentMap ? EventKind::segment_map
                                                              : EventKind::segment_unmap;
        event.size = entry.size;
        break;
      case TraceAction::kOom:
        event.kind = EventKind::oom;
        event.address = kUnknown;
        event.requested = entry.size;
        event.aux = entry.address;
        break;
      default:
        return;
    }
    events_.push_back(event);
  }

  RecordSettings settings_;
  model::VersionProfile profile_;
  std::vector<Event> events_;
  RecordingProvider provider_;
  model::CachingAllocator allocator_;
};

// A training-shaped life: weights that stay, activations of many sizes that come and go.
inline void train(RecordedModel& recorded, int steps, uint64_t seed, bool second_stream) {
  uint64_t state = seed * 2654435761u + 1;
  const auto random = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  for (int i = 0; i < 12; ++i) recorded.alloc(1000 + random(6u << 20));
  for (int step = 0; step < steps; ++step) {
    std::vector<uint64_t> live;
    for (int i = 0; i < 40; ++i) {
      const uint64_t size = random(3) == 0 ? 1 + random(5000) : 1 + random(24u << 20);
      const uint64_t stream = second_stream && random(4) == 0 ? 7 : 0;
      if (const uint64_t address = recorded.alloc(size, stream)) live.push_back(address);
      if (second_stream && !live.empty() && random(6) == 0) {
        recorded.allocator().record_stream(live.back(), 9);
      }
      if (live.size() > 5 && random(2) == 0) {
        const size_t victim = random(live.size());
        recorded.free(live[victim]);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
      }
      if (second_stream && random(10) == 0) recorded.allocator().complete(9);
      if (second_stream && random(10) == 0) recorded.allocator().work(9);
    }
    while (!live.empty()) {
      recorded.free(live.back());
      live.pop_back();
    }
    if (step % 4 == 3) recorded.empty_cache();
  }
}

}  // namespace fragscope::test
