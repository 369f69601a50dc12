#include "replay/block_ops.h"

#include <algorithm>
#include <iterator>

namespace fragscope::replay {
namespace {

constexpr int32_t kOutOfMemory = 2;  // of cudaError_t and of CUresult

bool failed(const Event& event) { return event.result != 0 && event.result != kResultPending; }

}  // namespace

BlockSource BlockPlane::source_of(const Event& event) const {
  if ((event.flags & kSourceFlags) == 0) return stated_.value_or(BlockSource::api);
  if (event.flags & kFlagSourceAdaptor) return BlockSource::adaptor;
  if (event.flags & kFlagSourceApi) return BlockSource::api;
  if (event.flags & kFlagSourceSnapshot) return BlockSource::snapshot;
  return BlockSource::report;
}

void BlockPlane::feed(const Event& event, std::vector<BlockOp>& ops) {
  ops.clear();
  if (event.kind >= EventKind::alloc && event.kind <= EventKind::annotate) {
    feed_block(event, ops);
  } else {
    feed_driver(event, ops);
  }
}

void BlockPlane::feed_driver(const Event& event, std::vector<BlockOp>& ops) {
  switch (event.kind) {
    case EventKind::device_alloc:
      if (event.flags & kFlagServed) {  // a block of the policy, not memory of its own
        saw_served_calls_ = true;
        return;
      }
      if (event.result == kOutOfMemory) {
        ops.push_back(make_op(BlockOpKind::segment_refused, event));
      } else if (!failed(event)) {
        add_range(event);
      }
      return;
    case EventKind::phys_create:  // other errors are probes for kinds of memory
      if (event.result == kOutOfMemory) {
        ops.push_back(make_op(BlockOpKind::segment_refused, event));
      }
      return;
    case EventKind::async_alloc:
      if (!failed(event)) add_range(event);
      return;
    case EventKind::device_free:
    case EventKind::async_free:
      if (!failed(event) && !(event.flags & kFlagServed)) end_range(event, ops);
      return;
    case EventKind::context_destroy:
      if (!failed(event)) end_device(event.device);
      return;
    case EventKind::stream_create:
      if (!failed(event)) saw_streams_ = true;
      return;
    default:
      return;
  }
}

void BlockPlane::feed_block(const Event& event, std::vector<BlockOp>& ops) {
  const BlockSource source = source_of(event);
  // Once torch's tracker is attached, reports repeat what it tells.
  const bool repeats = source == BlockSource::report && source_ > BlockSource::report;
  source_ = std::max(source_, source);
  if (source == source_ && source != BlockSource::report) {
    plain_source_ = event.flags & kSourceFlags;
  }
  switch (event.kind) {
    case EventKind::alloc:
      if (repeats) {
        ops.push_back(make_op(BlockOpKind::block_size, event));
      } else {
        feed_alloc(event, source, ops);
      }
      return;
    case EventKind::free_requested:
      if (repeats) return;
      ops.push_back(make_op(BlockOpKind::free_requested, event));
      ops.back().allocated_after = event.aux;
      ops.back().reserved_after = event.aux2;
      if (source == BlockSource::report) {
        ops.push_back(make_op(BlockOpKind::free_completed, event));
        ops.back().assumed = true;
      }
      return;
    case EventKind::free_completed:
      ops.push_back(make_op(BlockOpKind::free_completed, event));
      return;
    case EventKind::segment_alloc:
      add_segment(event);
      ops.push_back(make_op(BlockOpKind::segment_alloc, event));
      if (ops.back().at_start) ops.back().is_small = event.aux;
      return;
    case EventKind::segment_free:
      if (const auto range = ranges_.find(event.address); range != ranges_.end()) forget(range);
      ops.push_back(make_op(BlockOpKind::segment_free, event));
      return;
    case EventKind::segment_map:
    case EventKind::segment_unmap:
      ops.push_back(make_op(event.kind == EventKind::segment_map ? BlockOpKind::segment_alloc
                                                                 : BlockOpKind::segment_free,
                            event));
      ops.back().expandable = true;
      if (ops.back().at_start) ops.back().is_small = event.aux;
      return;
    case EventKind::oom:
      if (repeats) return;
      ops.push_back(make_op(BlockOpKind::oom, event));
      ops.back().size = kUnknown;
      ops.back().requested = event.requested != kUnknown ? event.requested : event.size;
      ops.back().device_free = event.aux;
      ops.back().by_segment = source == BlockSource::report;
      return;
    default:
      return;
  }
}

void BlockPlane::feed_alloc(const Event& event, BlockSource source, std::vector<BlockOp>& ops) {
  announce_segment(event, ops);
  ops.push_back(make_op(BlockOpKind::alloc, event));
  BlockOp& op = ops.back();
  op.allocated_after = event.aux;
  op.reserved_after = event.aux2;
  if (source == BlockSource::report) {
    op.requested = kUnknown;
    op.stream = kUnknown;
  }
  if (op.stream == kUnknown) ++blocks_without_stream_;
  settle_fresh(event.device);
}

void BlockPlane::add_range(const Event& event) {
  if (event.address == kUnknown || event.size == kUnknown || event.address == 0) return;
  if (const auto old = ranges_.find(event.address); old != ranges_.end()) forget(old);
  forget_pages();
  any_fresh_ = true;
  ranges_[event.address] = {event.size, event.device, Owner::fresh};
  outside_[event.device].fresh.push_back(event.address);
}

void BlockPlane::end_range(const Event& event, std::vector<BlockOp>& ops) {
  const auto range = ranges_.find(event.address);
  if (range == ranges_.end()) return;
  if (range->second.owner == Owner::segment) {
    ops.push_back(make_op(BlockOpKind::segment_free, event));
    ops.back().device = range->second.device;
    ops.back().size = range->second.size;
  }
  forget(range);
}

void BlockPlane::end_device(int32_t device) {
  for (auto range = ranges_.begin(); range != ranges_.end();) {
    const auto next = std::next(range);
    if (range->second.device == device) forget(range);
    range = next;
  }
}

void BlockPlane::announce_segment(const Event& event, std::vector<BlockOp>& ops) {
  const auto after = ranges_.upper_bound(event.address);
  const uint64_t next = after == ranges_.end() ? UINT64_MAX : after->first;
  if (after == ranges_.begin()) return note_silent(event.address, 0, next);
  const auto range = std::prev(after);
  const uint64_t end = range->first + range->second.size;
  if (event.address - range->first >= range->second.size) {
    return note_silent(event.address, end, next);
  }
  if (range->second.owner == Owner::segment) return note_silent(event.address, range->first, end);
  if (range->second.owner == Owner::outside) {
    outside_[range->second.device].current -= range->second.size;
  }
  range->second.owner = Owner::segment;
  BlockOp op = make_op(BlockOpKind::segment_alloc, event);
  op.address = range->first;
  op.size = range->second.size;
  op.requested = kUnknown;
  if (source_ == BlockSource::report) op.stream = kUnknown;
  ops.push_back(op);
}

void BlockPlane::add_segment(const Event& event) {
  if (event.address == kUnknown || event.size == kUnknown) return;
  if (const auto old = ranges_.find(event.address); old != ranges_.end()) forget(old);
  forget_pages();
  ranges_[event.address] = {event.size, event.device, Owner::segment};
}

// Nothing is to be announced in [begin, end), where `address` lies.
void BlockPlane::note_silent(uint64_t address, uint64_t begin, uint64_t end) {
  const uint64_t page = address >> kPageBits;
  const uint64_t first = page << kPageBits;
  if (first < begin || end - first < (uint64_t{1} << kPageBits)) return;
  silent_pages_[page % kPages] = page;
  any_silent_ = true;
}

void BlockPlane::forget_pages() {
  if (any_silent_) silent_pages_ = no_pages();
  any_silent_ = false;
}

void BlockPlane::settle_fresh(int32_t device) {
  if (!any_fresh_) return;
  const auto at = outside_.find(device);
  if (at == outside_.end() || at->second.fresh.empty()) return;
  Outside& outside = at->second;
  for (const uint64_t address : outside.fresh) {
    const auto range = ranges_.find(address);
    if (range == ranges_.end() || range->second.owner != Owner::fresh) continue;
    range->second.owner = Owner::outside;
    outside.current += range->second.size;
  }
  outside.fresh.clear();
  outside.peak = std::max(outside.peak, outside.current);
  any_fresh_ = std::any_of(outside_.begin(), outside_.end(),
                           [](const auto& entry) { return !entry.second.fresh.empty(); });
}

void BlockPlane::forget(Ranges::iterator range) {
  forget_pages();
  if (range->second.owner == Owner::outside) {
    outside_[range->second.device].current -= range->second.size;
  }
  ranges_.erase(range);
}

uint64_t BlockPlane::outside_peak(int32_t device) const {
  const auto at = outside_.find(device);
  if (at == outside_.end()) return 0;
  uint64_t fresh = 0;
  for (const uint64_t address : at->second.fresh) {
    const auto range = ranges_.find(address);
    if (range != ranges_.end() && range->second.owner == Owner::fresh) fresh += range->second.size;
  }
  return std::max(at->second.peak, at->second.current + fresh);
}

void DriverRequests::feed(const Event& event, std::vector<BlockOp>& ops) {
  ops.clear();
  if (served_only_ && !(event.flags & kFlagServed)) return;
  if (event.kind == EventKind::device_alloc) {
    if (event.size == kUnknown || event.size == 0) return;
    BlockOp op = BlockPlane::make_op(failed(event) ? BlockOpKind::oom : BlockOpKind::alloc, event);
    op.requested = event.size;
    op.size = kUnknown;
    op.stream = 0;
    ops.push_back(op);
    if (!failed(event)) live_[event.address] = op;
    return;
  }
  if (event.kind != EventKind::device_free || failed(event)) return;
  const auto live = live_.find(event.address);
  if (live == live_.end()) return;
  for (const BlockOpKind kind : {BlockOpKind::free_requested, BlockOpKind::free_completed}) {
    ops.push_back(BlockPlane::make_op(kind, event));
    ops.back().device = live->second.device;
    ops.back().requested = live->second.requested;
  }
  live_.erase(live);
}

}  // namespace fragscope::replay
