#include "metrics/process_metrics.h"

#include <algorithm>

#include "event/event_names.h"
#include "replay/block_ops.h"
#include "replay/snapshot_notes.h"

namespace fragscope::metrics {
namespace {

using replay::BlockOp;
using replay::BlockOpKind;
using replay::BlockPlane;

using Heaps = std::map<int32_t, DeviceHeap>;

// Devices get a heap with their first op that can only be an allocator's.
void apply(Heaps& heaps, const BlockOp& op) {
  if (op.kind == BlockOpKind::segment_refused) return;
  heaps[op.device].apply(op);
}

struct FirstPass {
  BlockPlane plane;
  Heaps heaps;
  DriverBytes driver;
  PinnedBytes pinned;
  Phases phases;
  FailedCalls failures;
  SharedMemory shared;
  MemoryInfos memory_infos;

  explicit FirstPass(const replay::ProcessFacts& facts)
      : plane(facts.block_source), pinned(facts) {}

  void run(replay::EventStream& events, ProcessMetrics& metrics) {
    std::vector<BlockOp> ops;
    Event event;
    events.rewind();
    while (events.next(event)) {
      count(event, metrics);
      driver.feed(event);
      pinned.feed(event);
      shared.feed(event);
      failures.feed(event, driver.total_now(event.device));
      memory_infos.feed(event, driver.total_now(event.device));
      plane.feed(event, ops);
      for (const BlockOp& op : ops) apply(heaps, op);
      if (phases.wants(event)) phases.feed(event, held());
      last_time_ns = std::max(last_time_ns, event.time_ns);
    }
    metrics.phases = phases.finish(last_time_ns);
  }

 private:
  HeldBytes held() const {
    HeldBytes bytes;
    for (const auto& [index, accounts] : driver.devices()) {
      bytes.driver += accounts.total.current();
    }
    if (heaps.empty()) return bytes;
    bytes.allocated = 0;
    for (const auto& [index, heap] : heaps) *bytes.allocated += heap.allocated();
    return bytes;
  }

  uint64_t last_time_ns = 0;

  static void count(const Event& event, ProcessMetrics& metrics) {
    ++metrics.events;
    const Plane plane_of_event = plane_of(event.kind);
    if (plane_of_event == Plane::block) ++metrics.block_events;
    if (plane_of_event != Plane::driver) return;
    ++metrics.driver_events;
  }
};

// Takes the pictures. Moments are told by seq: the state after the ops of that event.
void take_moments(replay::EventStream& events, const replay::ProcessFacts& facts,
                  ProcessMetrics& metrics) {
  uint64_t last = 0;
  for (const auto& [index, device] : metrics.devices) {
    if (device.at_peak) last = std::max(last, device.at_peak->seq);
    if (device.at_oom) last = std::max(last, device.at_oom->seq);
  }
  BlockPlane plane(facts.block_source);
  Heaps heaps;
  std::vector<BlockOp> ops;
  Event event;
  events.rewind();
  while (last > 0 && events.next(event)) {
    plane.feed(event, ops);
    for (const BlockOp& op : ops) apply(heaps, op);
    for (auto& [index, device] : metrics.devices) {
      for (std::optional<Moment>* moment : {&device.at_peak, &device.at_oom}) {
        if (!*moment || (*moment)->seq != event.seq || (*moment)->time_ns != 0) continue;
        (*moment)->time_ns = event.time_ns;
        (*moment)->layout = heaps[index].layout();
      }
    }
    if (event.seq >= last) return;
  }
}

void fill_device(DeviceMetrics& device, const DeviceHeap& heap, bool one_stream) {
  device.heap = heap.figures(one_stream);
  device.ooms = heap.ooms();
  device.at_end = Moment{0, 0, heap.layout()};
  if (heap.allocated_peak_seq() > 0) device.at_peak = Moment{heap.allocated_peak_seq(), 0, {}};
  if (!heap.ooms().empty()) device.at_oom = Moment{heap.ooms().front().seq, 0, {}};
}

}  // namespace

std::map<int32_t, Moment> moments_at(replay::EventStream& events, const replay::ProcessFacts& facts,
                                     const std::map<int32_t, uint64_t>& seqs) {
  std::map<int32_t, Moment> moments;
  BlockPlane plane(facts.block_source);
  Heaps heaps;
  std::vector<BlockOp> ops;
  Event event;
  uint64_t seq = 0;
  uint64_t time_ns = 0;
  const auto take = [&](uint64_t next) {
    for (const auto& [device, wanted] : seqs) {
      if (next <= wanted || seq == 0 || moments.count(device) != 0) continue;
      moments[device] = Moment{seq, time_ns, heaps[device].layout()};
    }
  };
  events.rewind();
  while (moments.size() < seqs.size() && events.next(event)) {
    take(event.seq);
    seq = event.seq;
    time_ns = event.time_ns;
    plane.feed(event, ops);
    for (const BlockOp& op : ops) apply(heaps, op);
  }
  take(UINT64_MAX);
  return moments;
}

ProcessMetrics measure_process(replay::EventStream& events, const replay::ProcessFacts& facts) {
  ProcessMetrics metrics;
  metrics.facts = facts;
  metrics.coverage = coverage_of(facts);
  metrics.source_notes = replay::snapshot_notes(facts);
  FirstPass pass(facts);
  pass.run(events, metrics);
  metrics.source = pass.plane.source();
  for (const auto& [index, accounts] : pass.driver.devices()) {
    metrics.devices[index].driver = KnownLevel::of(accounts.total);
    metrics.devices[index].accounts = accounts;
  }
  for (const auto& [index, info] : pass.memory_infos.devices()) {
    metrics.devices[index].memory_info = info;
  }
  metrics.failed_calls = pass.failures.count();
  metrics.probes = pass.failures.probes();
  metrics.failures = pass.failures.by_function();
  metrics.shared = std::move(pass.shared);
  for (const auto& [index, heap] : pass.heaps) {
    fill_device(metrics.devices[index], heap, !pass.plane.saw_streams());
    metrics.anomalies += heap.anomalies();
  }
  for (auto& [index, device] : metrics.devices) {
    device.device = index;
    device.facts = facts.device(index);
    // A recorder of the driver plane that saw no allocation of this device saw 0 bytes.
    if (metrics.driver_events > 0 && !device.driver.peak) device.driver = {0, 0};
    if (metrics.driver_events > 0 && !device.accounts) device.accounts.emplace();
  }
  if (metrics.driver_events > 0) {
    metrics.pinned_driver = KnownLevel::of(pass.pinned.gauge());
    metrics.torch_host = pass.pinned.torch_host();
    metrics.pinned_holders = pass.pinned.holders();
  }
  take_moments(events, facts, metrics);
  return metrics;
}

}  // namespace fragscope::metrics
