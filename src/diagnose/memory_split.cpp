#include "diagnose/memory_split.h"

#include <algorithm>
#include <array>
#include <utility>

#include "model/rounding.h"

namespace fragscope::diagnose {
namespace {

using metrics::LayoutSegment;

void add_free(const LayoutSegment& segment, const RequestKind& request, uint64_t bytes,
              MemorySplit& split) {
  if (is_foreign_pool(segment, request)) {
    split.private_pool += bytes;
  } else if (segment.active_bytes() == 0) {
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

bool is_foreign_pool(const LayoutSegment& segment, const RequestKind& request) {
  return segment.pool && request.pool && *segment.pool != *request.pool;
}

std::string_view stranded_name(Stranded kind) {
  constexpr std::array<std::string_view, 7> kNames = {
      "split_remnants", "other_stream",     "other_pool",   "private_pool",
      "pending_events", "expandable_pages", "idle_segments"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view stranded_sentence(Stranded kind) {
  constexpr std::array<std::string_view, 7> kTexts = {
      "pieces between live blocks that are each too small",
      "pieces that belong to other streams",
      "pieces of the other pool (small against large requests)",
      "memory of a private pool (a CUDA graph's or a MemPool) that this request was not for",
      "blocks that are freed but wait for events of other streams",
      "rests of mapped pages of expandable segments",
      "whole idle segments"};
  return kTexts[static_cast<size_t>(kind)];
}

Stranded largest_stranded(const MemorySplit& split) {
  const std::array<std::pair<uint64_t, Stranded>, 6> kinds = {{
      {split.split_rests, Stranded::split_rests},
      {split.other_stream, Stranded::other_stream},
      {split.other_pool, Stranded::other_pool},
      {split.private_pool, Stranded::private_pool},
      {split.expandable, Stranded::expandable},
      {split.idle, Stranded::idle},
  }};
  const auto less = [](const auto& left, const auto& right) { return left.first < right.first; };
  return std::max_element(kinds.begin(), kinds.end(), less)->second;
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
