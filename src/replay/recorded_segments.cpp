#include "replay/recorded_segments.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "replay/hex_text.h"

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
  if (op.expandable) {
    saw_expandable_ = true;
    return;
  }
  if (op.kind == BlockOpKind::segment_alloc) {
    if (op.address == kUnknown || op.size == kUnknown) return;
    const uint64_t stream = op.stream == kUnknown ? 0 : op.stream;
    segments_[op.address] = {{op.address, op.size, stream}, next_number_++};
  } else {
    segments_.erase(op.address);
  }
}

std::optional<uint64_t> RecordedSegments::device_malloc(uint64_t bytes) {
  if (forced_) return std::exchange(forced_, std::nullopt);
  if (building_) return invent(bytes);
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
  if (building_) return;
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

bool RecordedSegments::holds(uint64_t address, uint64_t size) const {
  auto at = segments_.upper_bound(address);
  if (at == segments_.begin()) return false;
  --at;
  const uint64_t inside = address - at->first;
  return inside < at->second.segment.size && size <= at->second.segment.size - inside;
}

}  // namespace fragscope::replay
