#include "replay/state_builder.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"

namespace fragscope::replay {
namespace {

using Segment = RecordedSegments::Segment;
using model::BlockSnapshot;
using model::BlockState;
using model::SegmentSnapshot;

constexpr uint64_t kSmallSegment = 2 * kMiB;  // segments, and pages, of the small pools
constexpr uint64_t kLargestSmall = kMiB;      // requests up to here go to the small pools

using Blocks = std::span<const PlacedBlock>;

class Builder {
 public:
  explicit Builder(const model::CachingAllocator& rules) : rules_(rules) {}

  void fill(const Segment& segment, Blocks blocks) {
    SegmentSnapshot& picture = state_.segments.emplace_back();
    picture.address = segment.address;
    picture.total_size = segment.size;
    picture.stream = segment.stream;
    picture.pool = segment.pool;
    picture.is_expandable = segment.expandable;
    const bool small = is_small(segment, blocks);
    const bool splits_small =
        small || segment.expandable ||
        (rules_.profile().expandable_split_by_option && rules_.config().expandable_segments);
    picture.kind = small ? model::PoolKind::kSmall : model::PoolKind::kLarge;
    uint64_t at = segment.address;
    const uint64_t end = segment.address + segment.size;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const PlacedBlock& block = blocks[i];
      const uint64_t next = i + 1 < blocks.size() ? blocks[i + 1].address : end;
      const uint64_t size = size_of(block, next - block.address, splits_small);
      if (block.address < at || size == 0 || size > end - block.address) {
        ++state_.lost;
        continue;
      }
      add_free(picture, at, block.address);
      picture.blocks.push_back({block.address, size, block.requested, BlockState::kAllocated});
      if (block.pending) state_.pending.push_back(block.address);
      at = block.address + size;
    }
    add_free(picture, at, end);
  }

  void count_lost(uint64_t blocks) { state_.lost += blocks; }
  BuiltState finish() { return std::move(state_); }

 private:
  static void add_free(SegmentSnapshot& picture, uint64_t begin, uint64_t end) {
    if (begin < end) picture.blocks.push_back({begin, end - begin, 0, BlockState::kInactive});
  }

  static bool is_small(const Segment& segment, Blocks blocks) {
    if (segment.small) return *segment.small;
    if (!segment.expandable) return segment.size == kSmallSegment;
    const auto bytes = [](const PlacedBlock& block) {
      return block.size != kUnknown ? block.size : block.requested;
    };
    for (const PlacedBlock& block : blocks) {
      if (bytes(block) > kLargestSmall) return false;
    }
    return !blocks.empty() || segment.size < 10 * kMiB;  // no page of a large pool is smaller
  }

  // 0: it does not fit. A rest that the allocator would not have split off belongs to the block:
  // in a large pool no free block is ever that small.
  uint64_t size_of(const PlacedBlock& block, uint64_t room, bool splits_small) const {
    if (block.size != kUnknown) return block.size;
    if (block.requested == 0) return 0;
    const uint64_t rounded = rules_.round_size(block.requested);
    if (rounded > room) return 0;
    if (splits_small) return rounded;
    const bool splits = room - rounded > kLargestSmall && rounded < rules_.config().max_split_size;
    return splits ? rounded : room;
  }

  const model::CachingAllocator& rules_;
  BuiltState state_;
};

}  // namespace

BuiltState build_state(const model::CachingAllocator& rules, std::span<const Segment> segments,
                       std::vector<PlacedBlock> blocks) {
  std::sort(blocks.begin(), blocks.end(), [](const PlacedBlock& left, const PlacedBlock& right) {
    return left.address < right.address;
  });
  Builder builder(rules);
  size_t placed = 0;
  const auto below = [](const PlacedBlock& block, uint64_t address) {
    return block.address < address;
  };
  for (const Segment& segment : segments) {
    const auto first = std::lower_bound(blocks.begin(), blocks.end(), segment.address, below);
    const auto last = std::lower_bound(first, blocks.end(), segment.address + segment.size, below);
    builder.fill(segment, Blocks(first, last));
    placed += static_cast<size_t>(last - first);
  }
  builder.count_lost(blocks.size() - std::min(placed, blocks.size()));
  return builder.finish();
}

}  // namespace fragscope::replay
