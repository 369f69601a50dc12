#include "diagnose/memory_split.h"

#include <algorithm>

#include "model/rounding.h"

namespace fragscope::diagnose {
namespace {

using metrics::LayoutSegment;

void add_free(const LayoutSegment& segment, const RequestKind& request, uint64_t bytes,
              MemorySplit& split) {
  if (segment.active_bytes() == 0) {
    split.idle += bytes;
  } else if (segment.expandable) {
    split.expandable += bytes;
  } else if (is_small_pool(segment) != request.small) {
    split.other_pool += bytes;
  } else if (request.stream && segment.stream != kUnknown && segment.stream != *request.stream) {
    split.other_stream += bytes;
  } else {
    split.split_rests += bytes;
  }
}

}  // namespace

bool is_small_pool(const LayoutSegment& segment) {
  return !segment.expandable && segment.size == model::kSmallBuffer;
}

MemorySplit split_memory(const metrics::Scene& scene, const RequestKind& request,
                         const replay::DeviceFacts& device) {
  MemorySplit split;
  split.total = device.total_bytes;
  split.context = device.context_bytes;
  split.device_free = scene.device_free;
  for (const LayoutSegment& segment : scene.layout) {
    for (const metrics::LayoutBlock& block : segment.blocks) {
      if (block.state == metrics::BlockState::active_allocated) split.live += block.size;
      if (block.state == metrics::BlockState::active_pending_free) split.pending += block.size;
      if (block.state == metrics::BlockState::inactive)
        add_free(segment, request, block.size, split);
    }
  }
  if (scene.driver_bytes) {
    split.outside = *scene.driver_bytes - std::min(*scene.driver_bytes, split.reserved());
  }
  if (!split.total || !split.device_free || !split.outside) return split;
  const uint64_t known =
      split.reserved() + *split.outside + *split.device_free + split.context.value_or(0);
  split.elsewhere = *split.total - std::min(*split.total, known);
  return split;
}

}  // namespace fragscope::diagnose
