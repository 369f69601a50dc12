#include "import/device_history.h"

#include <algorithm>
#include <iterator>

namespace fragscope::imported {
namespace {

struct Live {
  uint64_t size = kUnknown;
  uint64_t requested = kUnknown;
  uint32_t stack = 0;
  bool pending = false;
};

class Rewinder {
 public:
  Rewinder(SnapshotParts& parts, int32_t device) : parts_(parts) {
    for (const SnapshotSegment& segment : parts_.segments) {
      if (segment.device == device) add_final(segment);
    }
  }

  void undo(TraceEntry& entry) {
    switch (entry.action) {
      case Action::alloc:
        undo_alloc(entry);
        return;
      case Action::free_requested:
        undo_free_requested(entry);
        return;
      case Action::free_completed:
        undo_free_completed(entry);
        return;
      case Action::segment_alloc:
      case Action::segment_map:
        undo_begin(entry, entry.action == Action::segment_map);
        return;
      case Action::segment_free:
      case Action::segment_unmap:
        undo_end(entry, entry.action == Action::segment_unmap);
        return;
      default:
        return;
    }
  }

  DeviceHistory finish() {
    for (const auto& [address, segment] : segments_) history_.segments.push_back(segment);
    history_.blocks.reserve(live_.size());
    for (const auto& [address, live] : live_) {
      history_.blocks.push_back({address, live.size, live.requested, live.stack, live.pending});
    }
    std::sort(history_.blocks.begin(), history_.blocks.end(),
              [](const StartBlock& left, const StartBlock& right) {
                return left.address < right.address;
              });
    return std::move(history_);
  }

 private:
  void add_final(const SnapshotSegment& segment) {
    StartSegment start;
    start.address = segment.address;
    start.size = segment.size;
    start.stack = segment.stack;
    start.pool = segment.pool;
    start.stream = segment.stream;
    start.type = segment.type;
    start.expandable = segment.expandable;
    if (overlaps(start.address, start.size)) {
      ++history_.contradictions.segments;
      return;
    }
    segments_[start.address] = start;
    uint64_t at = segment.address;  // blocks of 2.0 and before have no addresses
    for (uint32_t i = 0; i < segment.block_count; ++i) {
      const SnapshotBlock& block = parts_.blocks[segment.first_block + i];
      if (block.address != kUnknown) at = block.address;
      if (block.size == kUnknown || at - segment.address > segment.size ||
          block.size > segment.size - (at - segment.address)) {
        ++history_.contradictions.blocks;
        continue;
      }
      if (block.state != BlockState::inactive) {
        live_[at] = {block.size, block.requested, block.stack,
                     block.state == BlockState::pending_free};
      }
      at += block.size;
    }
  }

  using Segments = std::map<uint64_t, StartSegment>;

  Segments::iterator segment_of(uint64_t address) {
    auto at = segments_.upper_bound(address);
    if (at == segments_.begin()) return segments_.end();
    --at;
    return address - at->first < at->second.size ? at : segments_.end();
  }

  bool overlaps(uint64_t address, uint64_t size) {
    if (segment_of(address) != segments_.end()) return true;
    const auto next = segments_.lower_bound(address);
    return next != segments_.end() && next->first - address < size;
  }

  void undo_alloc(TraceEntry& entry) {
    const auto segment = segment_of(entry.address);
    if (segment == segments_.end()) {
      ++history_.contradictions.outside_segments;
    } else if (entry.pool == 0) {
      entry.pool = segment->second.pool;
    }
    const auto live = live_.find(entry.address);
    if (live == live_.end() || live->second.pending) ++history_.contradictions.blocks;
    if (live != live_.end()) live_.erase(live);
  }

  void undo_free_requested(const TraceEntry& entry) {
    const auto live = live_.find(entry.address);
    if (live != live_.end() && live->second.pending) {
      live->second.pending = false;
      return;
    }
    ++history_.contradictions.blocks;
    if (live == live_.end()) live_[entry.address] = {kUnknown, entry.size, 0, false};
  }

  void undo_free_completed(const TraceEntry& entry) {
    const auto [live, fresh] = live_.try_emplace(entry.address);
    if (!fresh) ++history_.contradictions.blocks;
    live->second = {kUnknown, entry.size, 0, true};
  }

  // A segment, or pages of an expandable one, began: before, they were not there.
  void undo_begin(TraceEntry& entry, bool pages) {
    const auto segment = segment_of(entry.address);
    if (segment == segments_.end() || segment->second.expandable != pages ||
        entry.size == kUnknown) {
      ++history_.contradictions.segments;
      return;
    }
    if (entry.pool == 0) entry.pool = segment->second.pool;
    const StartSegment whole = segment->second;
    const uint64_t skipped = entry.address - whole.address;
    const bool fits =
        pages ? entry.size <= whole.size - skipped : skipped == 0 && entry.size == whole.size;
    if (!fits) ++history_.contradictions.segments;
    segments_.erase(segment);
    if (!pages || !fits) return;
    add_piece(whole, whole.address, skipped);
    add_piece(whole, entry.address + entry.size, whole.size - skipped - entry.size);
  }

  void add_piece(const StartSegment& whole, uint64_t address, uint64_t size) {
    if (size == 0) return;
    StartSegment piece = whole;
    piece.address = address;
    piece.size = size;
    segments_[address] = piece;
  }

  void undo_end(const TraceEntry& entry, bool pages) {
    if (entry.address == kUnknown || entry.size == kUnknown || entry.size == 0 ||
        entry.size > UINT64_MAX - entry.address || overlaps(entry.address, entry.size)) {
      ++history_.contradictions.segments;
      return;
    }
    StartSegment segment;
    segment.address = entry.address;
    segment.size = entry.size;
    segment.stream = entry.stream;
    segment.pool = entry.pool;
    segment.expandable = pages;
    if (pages) join_neighbours(segment);
    segments_[segment.address] = segment;
  }

  // Pages next to each other are one range, as in a snapshot.
  void join_neighbours(StartSegment& range) {
    auto next = segments_.lower_bound(range.address);
    if (next != segments_.begin()) {
      const auto before = std::prev(next);
      if (before->second.address + before->second.size == range.address &&
          joins(before->second, range)) {
        range.address = before->second.address;
        range.size += before->second.size;
        take_facts(before->second, range);
        segments_.erase(before);
      }
    }
    if (next != segments_.end() && next->first == range.address + range.size &&
        joins(next->second, range)) {
      range.size += next->second.size;
      take_facts(next->second, range);
      segments_.erase(next);
    }
  }

  static bool joins(const StartSegment& left, const StartSegment& right) {
    return left.expandable && left.stream == right.stream &&
           (left.pool == right.pool || left.pool == 0 || right.pool == 0);
  }

  static void take_facts(const StartSegment& from, StartSegment& range) {
    if (range.pool == 0) range.pool = from.pool;
    if (range.type == SegmentType::unknown) range.type = from.type;
    if (range.stack == 0) range.stack = from.stack;
  }

  SnapshotParts& parts_;
  Segments segments_;
  std::unordered_map<uint64_t, Live> live_;
  DeviceHistory history_;
};

}  // namespace

DeviceHistory rewind_device(Snapshot& snapshot, int32_t device) {
  Rewinder rewinder(snapshot.parts, device);
  const auto index = static_cast<size_t>(device);
  if (index < snapshot.traces.size()) {
    const std::vector<EntryRun>& runs = snapshot.traces[index];
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
      for (uint32_t i = run->count; i-- > 0;) {
        rewinder.undo(snapshot.parts.entries[run->first + i]);
      }
    }
  }
  return rewinder.finish();
}

}  // namespace fragscope::imported
