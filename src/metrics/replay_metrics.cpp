#include "metrics/replay_metrics.h"

#include <utility>

#include "metrics/layout_from_model.h"

namespace fragscope::metrics {
namespace {

KnownLevel known(const replay::Level& level) { return {level.peak, level.final}; }

ReplayedDevice device_of(const replay::DeviceReplay& replayed, replay::ReplayMode mode) {
  ReplayedDevice device;
  device.device = replayed.device;
  device.verify = replayed.verify;
  device.capacity = replayed.capacity;
  if (!replayed.figures) return device;
  const replay::ReplayFigures& figures = *replayed.figures;
  device.reserved = known(figures.reserved);
  device.allocated = known(figures.allocated);
  device.active = known(figures.active);
  if (figures.requested) device.requested = known(*figures.requested);
  device.inactive_split = known(figures.inactive_split);
  device.segments = known(figures.segments);
  device.ooms = figures.ooms;
  device.device_mallocs = figures.device_mallocs;
  device.device_frees = figures.device_frees;
  if (mode != replay::ReplayMode::verified) device.ooms_avoided = replayed.ooms_avoided;
  device.at_end = layout_from_model(replayed.segments);
  if (const auto& oom = replayed.at_oom) {
    device.at_oom = Moment{oom->seq, oom->time_ns, layout_from_model(oom->segments)};
  }
  return device;
}

}  // namespace

Result<ReplayMetrics> measure_replay(replay::EventStream& events, const replay::ProcessFacts& facts,
                                     const replay::ReplayOptions& options) {
  auto replayed = replay::replay_process(events, facts, options);
  if (!replayed) return replayed.error();
  ReplayMetrics metrics;
  metrics.mode = replayed->mode;
  metrics.reason = replayed->reason;
  metrics.torch_version = replayed->torch_version;
  metrics.alloc_conf = replayed->alloc_conf;
  metrics.assumptions = replayed->assumptions;
  metrics.perfect = replayed->perfect();
  for (const replay::DeviceReplay& device : replayed->devices) {
    metrics.devices.push_back(device_of(device, metrics.mode));
  }
  return metrics;
}

}  // namespace fragscope::metrics
