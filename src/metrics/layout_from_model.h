// The allocator model's segments as a layout, for pictures of a replay or of a policy.
#pragma once

#include <span>

#include "metrics/layout.h"
#include "model/caching_allocator.h"

namespace fragscope::metrics {

Layout layout_from_model(std::span<const model::SegmentSnapshot> segments);

}  // namespace fragscope::metrics
