#include "metrics/heap.h"

#include <algorithm>
#include <iterator>

namespace fragscope::metrics {
namespace {

using replay::BlockOp;
using replay::BlockOpKind;

// Free bytes of a segment that cannot be given back because something lives in it.
uint64_t stuck_bytes(uint64_t size, uint64_t active) {
  return active == 0 || active >= size ? 0 : size - active;
}

std::optional<uint32_t> pool_of(const BlockOp& op) {
  return op.pool_known ? std::optional<uint32_t>(op.pool) : std::nullopt;
}

}  // namespace

void DeviceHeap::apply(const BlockOp& op) {
  if (unsized_ > 0 && op.kind != BlockOpKind::block_size) sizes_missing_ = true;
  switch (op.kind) {
    case BlockOpKind::alloc:
      begin_block(op);
      take_totals(op);
      return;
    case BlockOpKind::block_size:
      size_block(op);
      return;
    case BlockOpKind::free_requested:
      request_free(op);
      take_totals(op);
      return;
    case BlockOpKind::free_completed:
      complete_free(op);
      return;
    case BlockOpKind::segment_alloc:
      op.expandable ? map_range(op) : begin_segment(op);
      return;
    case BlockOpKind::segment_free:
      op.expandable ? unmap_range(op) : end_segment(op);
      return;
    case BlockOpKind::segment_refused:
      return;
    case BlockOpKind::oom: {
      replay::OomFact fact{op.seq, op.time_ns, op.stack, std::nullopt, std::nullopt};
      if (op.requested != kUnknown) fact.requested = op.requested;
      if (op.device_free != kUnknown) fact.device_free = op.device_free;
      ooms_.push_back(fact);
      return;
    }
  }
}

// --- blocks ---------------------------------------------------------------------------------

void DeviceHeap::begin_block(const BlockOp& op) {
  ++blocks_seen_;
  if (const auto old = live_.find(op.address); old != live_.end()) {
    ++anomalies_;  // handed out again without a free
    release(op.address, old->second);
    live_.erase(old);
  }
  if (segment_of(op.address) == segments_.end() && !is_mapped(op.address)) ++homeless_;
  Live block{op.size, op.requested, op.seq, op.stack, false};
  if (op.size == kUnknown) {
    ++unsized_;
  } else {
    allocated_.rise(op.size, op.seq);
    change_active(op.address, op.size, 0, op.seq);
  }
  if (op.requested == kUnknown) {
    ++unrequested_;
    requests_missing_ = true;
  } else {
    requested_.rise(op.requested, op.seq);
  }
  live_.emplace(op.address, block);
}

void DeviceHeap::size_block(const BlockOp& op) {
  const auto at = live_.find(op.address);
  if (at == live_.end() || at->second.size != kUnknown || op.size == kUnknown) return;
  at->second.size = op.size;
  --unsized_;
  if (!at->second.pending) allocated_.rise(op.size, op.seq);
  change_active(op.address, op.size, 0, op.seq);
}

void DeviceHeap::request_free(const BlockOp& op) {
  const auto at = live_.find(op.address);
  if (at == live_.end() || at->second.pending) {
    ++anomalies_;
    return;
  }
  at->second.pending = true;
  if (at->second.size != kUnknown) allocated_.fall(at->second.size);
}

void DeviceHeap::complete_free(const BlockOp& op) {
  if (op.assumed) completions_assumed_ = true;
  const auto at = live_.find(op.address);
  if (at == live_.end()) {
    if (!op.assumed) ++anomalies_;
    return;
  }
  release(op.address, at->second);
  live_.erase(at);
}

// The block's bytes leave every level.
void DeviceHeap::release(uint64_t address, Live& block) {
  if (block.size == kUnknown) {
    --unsized_;
  } else {
    if (!block.pending) allocated_.fall(block.size);
    change_active(address, 0, block.size, 0);
  }
  if (block.requested == kUnknown) {
    --unrequested_;
  } else {
    requested_.fall(block.requested);
  }
}

void DeviceHeap::change_active(uint64_t address, uint64_t added, uint64_t removed, uint64_t seq) {
  active_.fall(removed);
  active_.rise(added, seq);
  const auto segment = segment_of(address);
  if (segment == segments_.end()) return;
  Segment& facts = segment->second;
  const uint64_t before = stuck_bytes(facts.size, facts.active);
  facts.active = facts.active + added - std::min(removed, facts.active);
  const uint64_t after = stuck_bytes(facts.size, facts.active);
  inactive_split_.set(inactive_split_.current() - before + after, seq);
}

void DeviceHeap::take_totals(const BlockOp& op) {
  if (op.reserved_after == kUnknown) {
    totals_missing_ = true;
  } else {
    reported_reserved_.set(op.reserved_after, op.seq);
  }
}

// --- segments ---------------------------------------------------------------------------------

DeviceHeap::Segments::iterator DeviceHeap::segment_of(uint64_t address) {
  auto at = segments_.upper_bound(address);
  if (at == segments_.begin()) return segments_.end();
  --at;
  return address - at->first < at->second.size ? at : segments_.end();
}

bool DeviceHeap::is_mapped(uint64_t address) const {
  auto at = mapped_.upper_bound(address);
  if (at == mapped_.begin()) return false;
  --at;
  return address - at->first < at->second.size;
}

void DeviceHeap::count_reserved(uint64_t seq) {
  reserved_.set(segment_bytes_ + mapped_bytes_, seq);
  segment_count_.set(segments_.size(), seq);
}

void DeviceHeap::begin_segment(const BlockOp& op) {
  if (op.address == kUnknown || op.size == kUnknown) {
    ++anomalies_;
    return;
  }
  if (segments_.count(op.address) != 0) {
    ++anomalies_;
    end_segment(op);
  }
  segments_[op.address] = {op.size, op.stream, 0, pool_of(op)};
  segment_bytes_ += op.size;
  count_reserved(op.seq);
}

void DeviceHeap::end_segment(const BlockOp& op) {
  const auto at = segments_.find(op.address);
  if (at == segments_.end()) {
    ++anomalies_;
    return;
  }
  inactive_split_.fall(stuck_bytes(at->second.size, at->second.active));
  segment_bytes_ -= at->second.size;
  segments_.erase(at);
  count_reserved(op.seq);
  reported_reserved_.fall(op.size == kUnknown ? 0 : op.size);  // until the next total comes
}

void DeviceHeap::map_range(const BlockOp& op) {
  if (op.address == kUnknown || op.size == kUnknown || is_mapped(op.address)) {
    ++anomalies_;
    return;
  }
  uint64_t start = op.address;
  Mapped range{op.size, op.stream, pool_of(op)};
  auto next = mapped_.lower_bound(start);
  if (next != mapped_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.size == start && before->second.pool == range.pool) {
      start = before->first;
      range.size += before->second.size;
      mapped_.erase(before);
    }
  }
  if (next != mapped_.end() && next->first == op.address + op.size &&
      next->second.pool == range.pool) {
    range.size += next->second.size;
    mapped_.erase(next);
  }
  mapped_[start] = range;
  mapped_bytes_ += op.size;
  count_reserved(op.seq);
}

void DeviceHeap::unmap_range(const BlockOp& op) {
  auto at = mapped_.upper_bound(op.address);
  if (op.size == kUnknown || at == mapped_.begin()) {
    ++anomalies_;
    return;
  }
  --at;
  const uint64_t start = at->first;
  const Mapped whole = at->second;
  const uint64_t size = whole.size;
  const uint64_t skipped = op.address - start;
  if (skipped >= size || op.size > size - skipped) {
    ++anomalies_;
    return;
  }
  mapped_.erase(at);
  if (skipped > 0) mapped_[start] = {skipped, whole.stream, whole.pool};
  if (skipped + op.size < size) {
    mapped_[op.address + op.size] = {size - skipped - op.size, whole.stream, whole.pool};
  }
  mapped_bytes_ -= op.size;
  count_reserved(op.seq);
}

// --- answers ----------------------------------------------------------------------------------

HeapFigures DeviceHeap::figures(bool one_stream) const {
  HeapFigures figures;
  const bool segments_known = homeless_ == 0;
  if (segments_known) {
    figures.reserved = KnownLevel::of(reserved_);
    figures.segments = KnownLevel::of(segment_count_);
  } else if (!totals_missing_) {
    figures.reserved = KnownLevel::of(reported_reserved_);
  }
  if (!sizes_missing_ && unsized_ == 0) figures.allocated = KnownLevel::of(allocated_);
  if (!requests_missing_) figures.requested.peak = requested_.peak();
  if (unrequested_ == 0) figures.requested.final = requested_.current();
  const bool completions_known = !completions_assumed_ || one_stream;
  if (completions_known && figures.allocated.peak) {
    figures.active = KnownLevel::of(active_);
    if (segments_known) figures.inactive_split = KnownLevel::of(inactive_split_);
  }
  return figures;
}

Layout DeviceHeap::layout() const {
  Layout layout;
  layout.reserve(segments_.size() + mapped_.size());
  for (const auto& [address, segment] : segments_) {
    layout.push_back({address, segment.size, segment.stream, false, {}, segment.pool});
  }
  for (const auto& [address, range] : mapped_) {
    layout.push_back({address, range.size, range.stream, true, {}, range.pool});
  }
  std::sort(layout.begin(), layout.end(),
            [](const LayoutSegment& left, const LayoutSegment& right) {
              return left.address < right.address;
            });
  add_blocks(layout);
  return layout;
}

// Live blocks by address, and what lies between them as inactive ones.
void DeviceHeap::add_blocks(Layout& layout) const {
  std::vector<LayoutBlock> blocks;
  blocks.reserve(live_.size());
  for (const auto& [address, live] : live_) {
    if (live.size == kUnknown) continue;
    blocks.push_back({address, live.size, live.requested,
                      live.pending ? BlockState::active_pending_free : BlockState::active_allocated,
                      live.stack, live.seq});
  }
  std::sort(blocks.begin(), blocks.end(), [](const LayoutBlock& left, const LayoutBlock& right) {
    return left.address < right.address;
  });
  auto block = blocks.begin();
  for (LayoutSegment& segment : layout) {
    uint64_t at = segment.address;
    const uint64_t end = segment.address + segment.size;
    while (block != blocks.end() && block->address < segment.address) ++block;
    for (; block != blocks.end() && block->address < end; ++block) {
      if (block->address < at || block->size > end - block->address) continue;  // impossible event
      if (block->address > at) segment.blocks.push_back({at, block->address - at});
      segment.blocks.push_back(*block);
      at = block->address + block->size;
    }
    if (at < end) segment.blocks.push_back({at, end - at});
  }
}

}  // namespace fragscope::metrics
