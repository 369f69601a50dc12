#include "metrics/layout_from_model.h"

namespace fragscope::metrics {
namespace {

BlockState state_of(model::BlockState state) {
  switch (state) {
    case model::BlockState::kAllocated:
      return BlockState::active_allocated;
    case model::BlockState::kPendingFree:
      return BlockState::active_pending_free;
    case model::BlockState::kInactive:
      return BlockState::inactive;
  }
  return BlockState::inactive;
}

}  // namespace

Layout layout_from_model(std::span<const model::SegmentSnapshot> segments) {
  Layout layout;
  layout.reserve(segments.size());
  for (const model::SegmentSnapshot& segment : segments) {
    LayoutSegment made{
        segment.address, segment.total_size, segment.stream, segment.is_expandable, {},
        std::nullopt};
    for (const model::BlockSnapshot& block : segment.blocks) {
      const BlockState state = state_of(block.state);
      const uint64_t requested = state == BlockState::inactive ? kUnknown : block.requested_size;
      made.blocks.push_back({block.address, block.size, requested, state, kNoStack, 0});
    }
    layout.push_back(std::move(made));
  }
  return layout;
}

}  // namespace fragscope::metrics
