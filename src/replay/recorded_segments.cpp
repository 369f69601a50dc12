#include "replay/recorded_segments.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/bytes.h"
#include "replay/hex_text.h"
#include "replay/pool_use.h"

namespace fragscope::replay {
namespace {

bool is_segment_call(const BlockOp& op) {
  return op.kind == BlockOpKind::segment_alloc || op.kind == BlockOpKind::segment_free;
}

std::string malloc_text(uint64_t bytes) {
  return "cudaMalloc of " + std::to_string(bytes) + " bytes";
}

std::string pages_text(const char* verb, uint64_t bytes, uint64_t address) {
  return std::string(verb) + " of " + std::to_string(bytes) + " bytes at " + hex_text(address);
}

std::string free_text(uint64_t address) {
  return "cudaFree of the segment at " + hex_text(address);
}

std::string call_text(const BlockOp* op) {
  if (!op) return "no call for device memory";
  const bool begins = op->kind == BlockOpKind::segment_alloc;
  if (op->expandable) return pages_text(begins ? "map" : "unmap", op->size, op->address);
  return begins ? malloc_text(op->size) : free_text(op->address);
}

}  // namespace

// The next recorded call that is the allocator's for sure; refusals may be anybody's.
const BlockOp* RecordedSegments::next_call() {
  for (size_t i = position_; i < own_.size(); ++i) {
    if (is_segment_call(own_[i])) return &own_[i];
  }
  return nullptr;
}

// An attempt that left no record: memory was released, or the request failed. Where CUDA's refusals
// are recorded it was not asked: the allocator kept to a limit of its own.
bool RecordedSegments::was_refused() {
  const BlockOp* next = next_call();
  const bool refused = next ? next->kind == BlockOpKind::segment_free : fails_;
  if (refused && refusals_recorded_) ++counts_.unasked_refusals;
  return refused;
}

void RecordedSegments::miss(std::string predicted, const BlockOp* recorded) {
  ++counts_.segment_calls;
  if (matched_) mismatch_ = {std::move(predicted), call_text(recorded)};
  matched_ = false;
}

void RecordedSegments::hit(const BlockOp& op) {
  position_ = static_cast<size_t>(&op - own_.data()) + 1;
  if (op.kind != BlockOpKind::segment_refused) take_notice(op);
  ++counts_.segment_calls;
  ++counts_.segment_matches;
}

void RecordedSegments::take_notice(const BlockOp& op) {
  if (op.address == kUnknown) return;
  if (op.kind != BlockOpKind::segment_alloc) {
    take_away(op.address, op.size, op.expandable);
    return;
  }
  if (op.size == kUnknown) return;
  Segment segment;
  segment.address = op.address;
  segment.size = op.size;
  segment.stream = op.stream == kUnknown ? 0 : op.stream;
  segment.pool = pool_of(op);
  segment.expandable = op.expandable;
  add(segment);
}

// Pages are joined with those of the same pool and stream at either side.
void RecordedSegments::add(const Segment& added) {
  Segment segment = added;
  uint64_t number = next_number_++;
  const auto joins = [&](const Segment& other) {
    return segment.expandable && other.expandable && other.stream == segment.stream &&
           other.pool == segment.pool;
  };
  auto next = segments_.lower_bound(segment.address);
  if (next != segments_.begin()) {
    const auto before = std::prev(next);
    const Segment& other = before->second.segment;
    if (joins(other) && other.address + other.size == segment.address) {
      segment.address = other.address;
      segment.size += other.size;
      segment.small = other.small;
      number = before->second.number;
      segments_.erase(before);
    }
  }
  if (next != segments_.end() && next->first == segment.address + segment.size &&
      joins(next->second.segment)) {
    segment.size += next->second.segment.size;
    if (!segment.small) segment.small = next->second.segment.small;
    number = std::min(number, next->second.number);
    segments_.erase(next);
  }
  segments_[segment.address] = {segment, number};
}

bool RecordedSegments::is_of_start(uint64_t address) const {
  const Segment* segment = segment_of(address);
  return segment && segments_.at(segment->address).number < start_count_;
}

void RecordedSegments::set_start_order(const std::vector<uint64_t>& addresses) {
  start_count_ = std::max<uint64_t>(start_count_, addresses.size());
  for (size_t i = 0; i < addresses.size(); ++i) {
    const auto at = segments_.find(addresses[i]);
    if (at != segments_.end() && at->second.number < start_count_) at->second.number = i;
  }
  next_number_ = std::max(next_number_, start_count_);
}

void RecordedSegments::take_away(uint64_t address, uint64_t size, bool expandable) {
  if (!expandable) {
    segments_.erase(address);
    return;
  }
  const Segment* found = segment_of(address);
  if (!found || !found->expandable) return;
  const Held whole = segments_.at(found->address);
  const uint64_t skipped = address - whole.segment.address;
  if (size > whole.segment.size - skipped) return;
  segments_.erase(whole.segment.address);
  const auto keep = [&](uint64_t begin, uint64_t bytes) {
    if (bytes == 0) return;
    Held piece = whole;
    piece.segment.address = begin;
    piece.segment.size = bytes;
    segments_[begin] = piece;
  };
  keep(whole.segment.address, skipped);
  keep(address + size, whole.segment.size - skipped - size);
}

std::optional<uint64_t> RecordedSegments::device_malloc(uint64_t bytes) {
  for (size_t i = position_; i < own_.size(); ++i) {
    const BlockOp& op = own_[i];
    if (op.kind == BlockOpKind::segment_refused && op.size == bytes) {
      hit(op);
      return std::nullopt;
    }
    if (op.kind == BlockOpKind::segment_alloc && !op.expandable && op.address != kUnknown) {
      if (op.size == bytes) {
        hit(op);
      } else {
        position_ = i + 1;
        take_notice(op);
        miss(malloc_text(bytes), &op);
      }
      return op.address;
    }
    if (op.kind == BlockOpKind::segment_free) break;
  }
  if (was_refused()) return std::nullopt;
  miss(malloc_text(bytes), next_call());
  return invent(bytes);
}

// The address of a new range of an expandable segment is that of its first pages.
std::optional<uint64_t> RecordedSegments::reserve(uint64_t bytes) {
  for (size_t i = position_; i < own_.size(); ++i) {
    const BlockOp& op = own_[i];
    if (op.kind == BlockOpKind::segment_alloc && op.expandable) return op.address;
  }
  return invent(bytes);
}

bool RecordedSegments::map(uint64_t address, uint64_t bytes) {
  for (size_t i = position_; i < own_.size(); ++i) {
    const BlockOp& op = own_[i];
    // One page of several was refused: then the whole call fails.
    if (op.kind == BlockOpKind::segment_refused && op.size != 0 && bytes % op.size == 0) {
      hit(op);
      return false;
    }
    if (!is_segment_call(op)) continue;
    const bool same = op.kind == BlockOpKind::segment_alloc && op.expandable &&
                      op.address == address && op.size == bytes;
    if (!same) break;
    hit(op);
    return true;
  }
  if (was_refused()) return false;
  miss(pages_text("map", bytes, address), next_call());
  return true;
}

void RecordedSegments::unmap(uint64_t address, uint64_t bytes) {
  const BlockOp* op = next_call();
  const bool same = op && op->kind == BlockOpKind::segment_free && op->expandable &&
                    op->address == address && op->size == bytes;
  if (same) {
    hit(*op);
  } else {
    miss(pages_text("unmap", bytes, address), op);
  }
}

uint64_t RecordedSegments::invent(uint64_t bytes) {
  const uint64_t invented = next_invented_;
  next_invented_ += round_up(bytes, 2 * kMiB);
  return invented;
}

void RecordedSegments::device_free(uint64_t address, uint64_t bytes) {
  const BlockOp* op = next_call();
  const bool same = op && op->kind == BlockOpKind::segment_free && !op->expandable &&
                    op->address == address && (op->size == kUnknown || op->size == bytes);
  if (same) {
    hit(*op);
  } else {
    miss(free_text(address), op);
  }
}

bool RecordedSegments::end_of_window() {
  while (const BlockOp* op = next_call()) {
    position_ = static_cast<size_t>(op - own_.data()) + 1;
    take_notice(*op);
    miss("no call for device memory", op);
  }
  own_ = {};
  position_ = 0;
  return matched_;
}

std::vector<RecordedSegments::Segment> RecordedSegments::segments() const {
  std::vector<Held> held;
  held.reserve(segments_.size());
  for (const auto& [address, entry] : segments_) held.push_back(entry);
  std::sort(held.begin(), held.end(),
            [](const Held& left, const Held& right) { return left.number < right.number; });
  std::vector<Segment> result;
  result.reserve(held.size());
  for (const Held& entry : held) result.push_back(entry.segment);
  return result;
}

const RecordedSegments::Segment* RecordedSegments::segment_of(uint64_t address) const {
  auto at = segments_.upper_bound(address);
  if (at == segments_.begin()) return nullptr;
  --at;
  return address - at->first < at->second.segment.size ? &at->second.segment : nullptr;
}

}  // namespace fragscope::replay
