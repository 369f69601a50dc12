// Expandable segments: ranges of address space that grow by whole pages.
#include <algorithm>

#include "model/caching_allocator.h"
#include "model/device_memory.h"
#include "model/rounding.h"

namespace fragscope::model {
namespace {

constexpr std::string_view kInvalidArgument = "CUDA driver error: invalid argument";

}  // namespace

bool CachingAllocator::is_available(BlockIndex index) const {
  if (index == kNone) return false;
  const Block& block = blocks_[index];
  return !block.allocated && blocks_.events(index) == 0 && !block.has_uses;
}

void CachingAllocator::insert_unmapped(BlockIndex index) {
  std::vector<BlockIndex>& set = arenas_[blocks_[index].arena].unmapped;
  const auto lower = [this](BlockIndex a, BlockIndex b) {
    return blocks_[a].address < blocks_[b].address;
  };
  set.insert(std::lower_bound(set.begin(), set.end(), index, lower), index);
}

void CachingAllocator::erase_unmapped(BlockIndex index) {
  std::vector<BlockIndex>& set = arenas_[blocks_[index].arena].unmapped;
  // A pool that was dropped with live blocks in it has forgotten its unmapped ones.
  const auto at = std::find(set.begin(), set.end(), index);
  if (at != set.end()) set.erase(at);
}

// A run of free and unmapped blocks with room for the request, by ascending address; a new range if
// there is none.
BlockIndex CachingAllocator::find_expandable(const Request& request) {
  for (const BlockIndex unmapped : arenas_[request.arena].unmapped) {
    BlockIndex start = unmapped;
    if (is_available(blocks_[unmapped].previous)) start = blocks_[unmapped].previous;
    uint64_t bytes = 0;
    for (BlockIndex at = start; bytes < request.rounded && is_available(at);
         at = blocks_[at].next) {
      bytes += blocks_[at].size;
    }
    if (bytes >= request.rounded) return start;
  }
  return new_range(request);
}

BlockIndex CachingAllocator::new_range(const Request& request) {
  const uint32_t pool = arenas_[request.arena].pool;
  Range range;
  const bool small = pools_[pool].kind == PoolKind::kSmall;
  range.page = expandable_page(config_, small);
  range.bytes = expandable_range_bytes(config_, small, provider_.memory_info().total);
  // large_segment_size_mb: an odd number; expandable_segments_reserve: less than a byte
  if (range.bytes == 0 || range.bytes % kDevicePage != 0) {
    last_error_ = kInvalidArgument;
    return kNone;
  }
  if (profile_.range_holds_request && range.bytes < request.rounded) return kNone;
  const std::optional<uint64_t> address = provider_.reserve(range.bytes);
  if (!address) {
    last_error_ = "CUDA driver error: out of memory";
    return kNone;
  }
  range.address = *address;
  range.alive = true;
  auto slot = std::find_if(ranges_.begin(), ranges_.end(), [](const Range& r) { return !r.alive; });
  if (slot == ranges_.end()) slot = ranges_.insert(slot, Range{});
  *slot = range;
  const BlockIndex index = blocks_.create();
  Block& block = blocks_[index];
  block.address = range.address;
  block.size = range.bytes;
  block.set_arena(request.arena);
  blocks_.set_range(index, static_cast<uint32_t>(slot - ranges_.begin()));
  block.number = segment_number();
  block.mapped = false;
  insert_unmapped(index);
  return index;
}

BlockIndex CachingAllocator::take_expandable(const Request& request) {
  BlockIndex candidate = find_expandable(request);
  if (candidate == kNone) return kNone;
  const uint64_t size = request.rounded;
  if (!blocks_[candidate].mapped &&
      !map_block(candidate, std::min(blocks_[candidate].size, size))) {
    return kNone;
  }
  while (blocks_[candidate].size < size) {
    const BlockIndex next = blocks_[candidate].next;
    const uint64_t missing = size - blocks_[candidate].size;
    if (!map_block(next, std::min(missing, blocks_[next].size))) return kNone;
    candidate = next;
  }
  return candidate;
}

// A new block for [address, address + size) of the same range as `whole`; not linked yet.
BlockIndex CachingAllocator::piece_of(BlockIndex whole, uint64_t address, uint64_t size,
                                      bool mapped) {
  const BlockIndex index = blocks_.create();
  Block& piece = blocks_[index];
  const Block& from = blocks_[whole];
  piece.address = address;
  piece.size = size;
  piece.arena = from.arena;
  blocks_.set_range(index, blocks_.range(whole));
  piece.number = number_for_new(from.number);
  piece.mapped = mapped;
  return index;
}

bool CachingAllocator::map_block(BlockIndex index, uint64_t size) {
  const uint64_t page = ranges_[blocks_.range(index)].page;
  const uint64_t bytes = round_up(size, page);
  const uint64_t address = blocks_[index].address;
  if (page % kDevicePage != 0) last_error_ = kInvalidArgument;
  if (page % kDevicePage != 0 || !provider_.map(address, bytes)) return false;
  erase_unmapped(index);
  blocks_[index].mapped = true;
  if (bytes < blocks_[index].size) {
    const BlockIndex rest =
        piece_of(index, address + bytes, blocks_[index].size - bytes, /*mapped=*/false);
    blocks_[index].size = bytes;
    link_after(index, rest);
    insert_unmapped(rest);
  }
  merge(index, blocks_[index].previous);
  merge(index, blocks_[index].next);
  insert_free(index);
  count_reserved(arenas_[blocks_[index].arena].pool, bytes, 0);
  ++stats_.num_device_alloc;
  Block mapped = blocks_[index];
  mapped.address = address;
  trace(TraceAction::kSegmentMap, mapped, bytes);
  return true;
}

// Gives back the whole pages inside a free block; without any, nothing happens.
void CachingAllocator::unmap_block(BlockIndex index) {
  const Range range = ranges_[blocks_.range(index)];
  const uint64_t begin = blocks_[index].address;
  const uint64_t end = begin + blocks_[index].size;
  const uint64_t first = range.address + round_up(begin - range.address, range.page);
  const uint64_t last = range.address + round_down(end - range.address, range.page);
  if (first >= last) return;
  synchronize_stream(arenas_[blocks_[index].arena].stream);
  provider_.unmap(first, last - first);
  erase_free(index);
  if (first > begin) {
    const BlockIndex head = piece_of(index, begin, first - begin, /*mapped=*/true);
    link_before(index, head);
    insert_free(head);
  }
  if (end > last) {
    const BlockIndex tail = piece_of(index, last, end - last, /*mapped=*/true);
    link_after(index, tail);
    insert_free(tail);
  }
  blocks_[index].address = first;
  blocks_[index].size = last - first;
  blocks_[index].mapped = false;
  merge(index, blocks_[index].previous);
  merge(index, blocks_[index].next);
  insert_unmapped(index);
  const uint32_t pool = arenas_[blocks_[index].arena].pool;
  count_reserved(pool, 0, last - first);
  ++stats_.num_device_free;
  if (pools_[pool].owner != kNone) {
    uint64_t& count = private_pools_[pools_[pool].owner].segments;
    library_undefined_ |= count == 0;  // an assertion fails in the middle of the flush
    --count;
  }
  Block unmapped = blocks_[index];
  unmapped.address = first;
  trace(TraceAction::kSegmentUnmap, unmapped, last - first);
  if (!blocks_[index].is_split()) release_range(index);
}

// The whole range is unmapped: its address space goes back.
void CachingAllocator::release_range(BlockIndex index) {
  Range& range = ranges_[blocks_.range(index)];
  erase_unmapped(index);
  provider_.release(range.address, range.bytes);
  range.alive = false;
  blocks_.destroy(index);
}

void CachingAllocator::link_after(BlockIndex index, BlockIndex piece) {
  blocks_[piece].previous = index;
  blocks_[piece].next = blocks_[index].next;
  if (blocks_[piece].next != kNone) blocks_[blocks_[piece].next].previous = piece;
  blocks_[index].next = piece;
}

void CachingAllocator::link_before(BlockIndex index, BlockIndex piece) {
  blocks_[piece].next = index;
  blocks_[piece].previous = blocks_[index].previous;
  if (blocks_[piece].previous != kNone) blocks_[blocks_[piece].previous].next = piece;
  blocks_[index].previous = piece;
}

}  // namespace fragscope::model
