// Statistics of an allocator model as figures of a replay.
#pragma once

#include "model/stats.h"
#include "replay/figures.h"

namespace fragscope::replay {

// Peaks, finals and counts of `stats`, with the peaks and counts of `before` folded in.
ReplayFigures figures_of(const model::DeviceStats& stats, const ReplayFigures& before);

}  // namespace fragscope::replay
