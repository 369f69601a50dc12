#include "replay/figures_of.h"

#include <algorithm>

namespace fragscope::replay {
namespace {

Level level_of(const model::PoolStat& stat, const Level& before) {
  return {std::max(static_cast<uint64_t>(stat.all.peak), before.peak),
          static_cast<uint64_t>(stat.all.current)};
}

}  // namespace

ReplayFigures figures_of(const model::DeviceStats& stats, const ReplayFigures& before) {
  ReplayFigures figures = before;
  figures.reserved = level_of(stats.reserved_bytes, before.reserved);
  figures.allocated = level_of(stats.allocated_bytes, before.allocated);
  figures.requested = level_of(stats.requested_bytes, before.requested.value_or(Level{}));
  figures.active = level_of(stats.active_bytes, before.active);
  figures.inactive_split = level_of(stats.inactive_split_bytes, before.inactive_split);
  figures.segments = level_of(stats.segment, before.segments);
  figures.device_mallocs = before.device_mallocs + static_cast<uint64_t>(stats.num_device_alloc);
  figures.device_frees = before.device_frees + static_cast<uint64_t>(stats.num_device_free);
  figures.alloc_retries = before.alloc_retries + static_cast<uint64_t>(stats.num_alloc_retries);
  return figures;
}

}  // namespace fragscope::replay
