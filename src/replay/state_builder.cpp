#include "replay/state_builder.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"

namespace fragscope::replay {
namespace {

using Segment = RecordedSegments::Segment;
using model::BlockIndex;
using model::CachingAllocator;
using model::MallocResult;

constexpr uint64_t kSmallSegment = 2 * kMiB;  // every segment of the small pools has this size
constexpr uint64_t kLargestSmall = kMiB;      // requests up to here go to the small pools

// Fills one segment after the other, from its low end, gaps included; then frees the gaps. While a
// segment is filled it holds the only free block of its pool and stream, so every request lands at
// its low end.
class Builder {
 public:
  Builder(CachingAllocator& allocator, RecordedSegments& provider)
      : allocator_(allocator), provider_(provider) {}

  void fill(const Segment& segment, std::span<const PlacedBlock> blocks) {
    if (!create(segment)) {
      result_.lost += blocks.size();
      return;
    }
    uint64_t at = segment.address;
    for (const PlacedBlock& block : blocks) {
      if (block.address < at || !put_gap(segment, at, block.address - at)) {
        ++result_.lost;
        continue;
      }
      at = block.address;
      if (put_block(segment, block)) at += block.size;
    }
    put_gap(segment, at, segment.address + segment.size - at);
  }

  BuildResult finish() {
    for (const BlockIndex gap : gaps_) allocator_.free_block(gap);
    return std::move(result_);
  }

 private:
  // The segment as one free block.
  bool create(const Segment& segment) {
    const uint64_t request = segment.size == kSmallSegment ? 512 : segment.size;
    if (allocator_.segment_size(allocator_.round_size(request)) != segment.size) return false;
    provider_.answer_next(segment.address);
    const MallocResult made = allocator_.malloc(request, segment.stream);
    if (!made.ok()) return false;
    allocator_.free_block(made.block);
    return made.address == segment.address;
  }

  bool put_gap(const Segment& segment, uint64_t at, uint64_t bytes) {
    const uint64_t most = segment.size == kSmallSegment ? kLargestSmall : bytes;
    while (bytes > 0) {
      const uint64_t piece = std::min(bytes, most);
      const MallocResult made = allocator_.malloc(piece, segment.stream);
      if (!made.ok()) return false;
      gaps_.push_back(made.block);
      if (made.address != at || made.block_size > bytes) return false;
      at += made.block_size;
      bytes -= made.block_size;
    }
    return true;
  }

  bool put_block(const Segment& segment, const PlacedBlock& block) {
    const bool exact = block.requested != 0 && allocator_.round_size(block.requested) == block.size;
    const MallocResult made =
        allocator_.malloc(exact ? block.requested : block.size, segment.stream);
    if (!made.ok()) {
      ++result_.lost;
      return false;
    }
    if (made.address != block.address || made.block_size != block.size) {
      gaps_.push_back(made.block);
      ++result_.lost;
      return made.address == block.address;
    }
    result_.blocks.push_back({block, made.block});
    return true;
  }

  CachingAllocator& allocator_;
  RecordedSegments& provider_;
  std::vector<BlockIndex> gaps_;
  BuildResult result_;
};

}  // namespace

BuildResult build_state(CachingAllocator& allocator, RecordedSegments& provider,
                        std::span<const Segment> segments, std::vector<PlacedBlock> blocks) {
  std::sort(blocks.begin(), blocks.end(), [](const PlacedBlock& left, const PlacedBlock& right) {
    return left.address < right.address;
  });
  const model::AllocatorConfig config = allocator.config();
  model::AllocatorConfig plain = config;  // gaps are not of rounded sizes
  plain.roundup_power2_divisions = {};
  plain.garbage_collection_threshold = 0;
  plain.max_split_size = model::kUnlimitedSplit;
  provider.set_building(true);
  allocator.set_config(plain);
  Builder builder(allocator, provider);
  size_t placed = 0;
  for (const Segment& segment : segments) {
    const auto first = std::lower_bound(
        blocks.begin(), blocks.end(), segment.address,
        [](const PlacedBlock& block, uint64_t address) { return block.address < address; });
    auto last = first;
    while (last != blocks.end() && last->address - segment.address < segment.size &&
           last->size <= segment.size - (last->address - segment.address)) {
      ++last;
    }
    builder.fill(segment, std::span<const PlacedBlock>(first, last));
    placed += static_cast<size_t>(last - first);
  }
  BuildResult result = builder.finish();
  result.lost += blocks.size() - std::min(placed, blocks.size());
  allocator.set_config(config);
  provider.set_building(false);
  return result;
}

}  // namespace fragscope::replay
