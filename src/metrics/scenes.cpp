#include "metrics/scenes.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "metrics/driver_bytes.h"
#include "metrics/pinned_bytes.h"
#include "replay/block_ops.h"

namespace fragscope::metrics {
namespace {

using replay::BlockOp;
using replay::BlockOpKind;

constexpr int32_t kOutOfMemory = 2;  // CUDA_ERROR_OUT_OF_MEMORY, cudaErrorMemoryAllocation
constexpr double kDescent = 0.7;     // of the level before
constexpr size_t kMaxSurvivors = 32;

// Counts the descents of a level: a fall below 70 % of the highest value since the last one.
class DescentCounter {
 public:
  void feed(uint64_t level) {
    if (level > crest_) crest_ = level;
    if (static_cast<double>(level) >= kDescent * static_cast<double>(crest_)) return;
    ++count_;
    crest_ = level;
  }
  uint32_t count() const { return count_; }

 private:
  uint64_t crest_ = 0;
  uint32_t count_ = 0;
};

struct DeviceState {
  DeviceHeap heap;
  DescentCounter descents;
  std::vector<uint64_t> alloc_seqs;  // of every block so far, ascending: the clock of the windows
};

class SceneTaker {
 public:
  SceneTaker(const ProcessMetrics& measured, size_t max_refusals)
      : measured_(measured),
        max_refusals_(std::max<size_t>(max_refusals, 1)),
        plane_(measured.facts.block_source),
        pinned_(measured.facts) {}

  std::vector<Scene> run(replay::EventStream& events) {
    Event event;
    events.rewind();
    while (events.next(event)) {
      driver_.feed(event);
      pinned_.feed(event);
      plane_.feed(event, ops_);
      for (const BlockOp& op : ops_) apply(op);
      take_driver_refusals(event);
      take_peaks(event);
    }
    return std::move(scenes_);
  }

 private:
  void apply(const BlockOp& op) {
    if (op.kind == BlockOpKind::segment_refused) {
      refused_by_cuda_[op.device] = true;
      return;
    }
    DeviceState& device = devices_[op.device];
    device.heap.apply(op);
    if (op.kind == BlockOpKind::alloc) {
      device.alloc_seqs.push_back(op.seq);
      refused_by_cuda_[op.device] = false;
    }
    device.descents.feed(device.heap.allocated());
    if (op.kind == BlockOpKind::oom) take_oom(op);
  }

  // A recorder of CUDA's calls counts them even when none of them was about memory.
  bool driver_recorded() const {
    return measured_.driver_events > 0 || measured_.coverage.hooked.value_or(0) > 0;
  }

  void take_oom(const BlockOp& op) {
    Scene scene = scene_at(SceneKind::oom, op.device, op.seq, op.time_ns);
    scene.stack = op.stack;
    scene.by_segment = op.by_segment;
    if (op.requested != kUnknown) scene.requested = op.requested;
    if (op.stream != kUnknown) scene.stream = op.stream;
    if (op.pool_known) scene.pool = op.pool;
    if (op.device_free != kUnknown) scene.device_free = op.device_free;
    if (driver_recorded()) scene.refused_by_cuda = refused_by_cuda_[op.device];
    refused_by_cuda_[op.device] = false;
    add_refusal(std::move(scene));
  }

  void take_driver_refusals(const Event& event) {
    if (event.result != kOutOfMemory || (event.flags & kFlagServed)) return;
    const bool pinned = event.kind == EventKind::pinned_alloc;
    const bool device = event.kind == EventKind::device_alloc ||
                        event.kind == EventKind::async_alloc ||
                        event.kind == EventKind::phys_create;
    if (!pinned && (!device || measured_.source != replay::BlockSource::none)) return;
    Scene scene = scene_at(pinned ? SceneKind::pinned_refused : SceneKind::refused, event.device,
                           event.seq, event.time_ns);
    scene.stack = event.stack;
    if (event.size != kUnknown) scene.requested = event.size;
    add_refusal(std::move(scene));
  }

  void take_peaks(const Event& event) {
    for (const auto& [index, device] : measured_.devices) {
      const bool here = device.at_peak && device.at_peak->seq == event.seq;
      if (here) scenes_.push_back(scene_at(SceneKind::peak, index, event.seq, event.time_ns));
    }
  }

  Scene scene_at(SceneKind kind, int32_t device, uint64_t seq, uint64_t time_ns) {
    Scene scene;
    scene.kind = kind;
    scene.device = device;
    scene.seq = seq;
    scene.time_ns = time_ns;
    scene.pinned_bytes = pinned_.gauge().current();
    if (driver_recorded()) {
      const auto gauge = driver_.devices().find(device);
      scene.driver_bytes = gauge == driver_.devices().end() ? 0 : gauge->second.total.current();
    }
    const auto state = devices_.find(device);
    if (state == devices_.end()) return scene;
    scene.layout = state->second.heap.layout();
    scene.descents = state->second.descents.count();
    scene.survivors = survivors_of(scene.layout, state->second.alloc_seqs);
    return scene;
  }

  static std::vector<Survivors> survivors_of(const Layout& layout,
                                             const std::vector<uint64_t>& alloc_seqs) {
    std::unordered_map<uint32_t, Survivors> by_stack;
    for (const LayoutSegment& segment : layout) {
      for (const LayoutBlock& block : segment.blocks) {
        if (block.state != BlockState::active_allocated) continue;
        const auto rank =
            std::lower_bound(alloc_seqs.begin(), alloc_seqs.end(), block.seq) - alloc_seqs.begin();
        const size_t window =
            std::min(static_cast<size_t>(rank) * Survivors::kWindows / alloc_seqs.size(),
                     Survivors::kWindows - 1);
        Survivors& survivors = by_stack[block.stack];
        survivors.stack = block.stack;
        survivors.bytes += block.size;
        survivors.window_bytes[window] += block.size;
        ++survivors.blocks;
      }
    }
    std::vector<Survivors> all;
    for (const auto& [stack, survivors] : by_stack) all.push_back(survivors);
    std::sort(all.begin(), all.end(), [](const Survivors& left, const Survivors& right) {
      return left.bytes != right.bytes ? left.bytes > right.bytes : left.stack < right.stack;
    });
    if (all.size() > kMaxSurvivors) all.resize(kMaxSurvivors);
    return all;
  }

  // When there are too many, the newest takes the place of the one before it.
  void add_refusal(Scene scene) {
    if (refusals_.size() < max_refusals_) {
      refusals_.push_back(scenes_.size());
      scenes_.push_back(std::move(scene));
      return;
    }
    scenes_.erase(scenes_.begin() + static_cast<std::ptrdiff_t>(refusals_.back()));
    refusals_.back() = scenes_.size();
    scenes_.push_back(std::move(scene));
  }

  const ProcessMetrics& measured_;
  size_t max_refusals_;
  replay::BlockPlane plane_;
  DriverBytes driver_;
  PinnedBytes pinned_;
  std::map<int32_t, DeviceState> devices_;
  std::vector<BlockOp> ops_;
  std::map<int32_t, bool> refused_by_cuda_;  // by device, since its newest block
  std::vector<Scene> scenes_;
  std::vector<size_t> refusals_;  // positions in scenes_
};

}  // namespace

std::vector<Scene> scenes_of(replay::EventStream& events, const ProcessMetrics& measured,
                             size_t max_refusals) {
  return SceneTaker(measured, max_refusals).run(events);
}

}  // namespace fragscope::metrics
