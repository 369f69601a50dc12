#include "replay/call_list.h"

#include <algorithm>
#include <utility>

#include "replay/pool_use.h"

namespace fragscope::replay {
namespace {

constexpr uint64_t kLargestRequest = 1ull << 60;  // PyTorch refuses more without an attempt
constexpr size_t kMostOrigins = UINT16_MAX;       // later ones count as the last

bool usable(uint64_t bytes) { return bytes != 0 && bytes < kLargestRequest; }

}  // namespace

uint16_t CallListBuilder::origin_of(const BlockOp& op) {
  const CallOrigin origin{op.stream == kUnknown ? 0 : op.stream, pool_of(op)};
  std::vector<CallOrigin>& origins = list_.origins;
  const auto at = std::find(origins.begin(), origins.end(), origin);
  if (at != origins.end()) return static_cast<uint16_t>(at - origins.begin());
  if (origins.size() < kMostOrigins) origins.push_back(origin);
  return static_cast<uint16_t>(origins.size() - 1);
}

void CallListBuilder::add(CallKind kind, const BlockOp& op, uint32_t slot, uint64_t bytes) {
  list_.calls.push_back({bytes, slot, origin_of(op), kind});
  if (with_seqs_) list_.seqs.push_back(op.seq);
}

void CallListBuilder::feed_start(const BlockOp& op) {
  if (op.kind == BlockOpKind::alloc) on_alloc(op, {});
  if (op.kind == BlockOpKind::free_requested) on_free_pending(op);
  list_.start_calls = list_.calls.size();
}

void CallListBuilder::on_alloc(const BlockOp& op, OpSpan own) {
  complete(own);
  if (op.requested == kUnknown) list_.sizes_known = false;
  end_live(op);
  if (!usable(op.request())) {
    ++list_.unusable;
    return;
  }
  uint32_t slot = list_.slots;
  if (unused_slots_.empty()) {
    ++list_.slots;
  } else {
    slot = unused_slots_.back();
    unused_slots_.pop_back();
  }
  live_[op.address] = {slot, false};
  add(CallKind::alloc, op, slot, op.request());
  ++list_.allocations;
}

void CallListBuilder::on_oom(const BlockOp& op, OpSpan own) {
  complete(own);
  if (usable(op.request())) {
    add(CallKind::refused, op, 0, op.request());
  } else {
    ++list_.unusable;
  }
}

void CallListBuilder::on_empty_cache(OpSpan own) {
  complete(own);
  add(CallKind::empty_cache, own.front(), 0);
}

void CallListBuilder::on_free(const BlockOp& op) {
  const auto live = live_.find(op.address);
  if (live == live_.end() || live->second.pending) return;
  add(CallKind::free, op, live->second.slot);
  unused_slots_.push_back(live->second.slot);
  live_.erase(live);
}

void CallListBuilder::on_free_pending(const BlockOp& op) {
  const auto live = live_.find(op.address);
  if (live == live_.end() || live->second.pending) return;
  live->second.pending = true;
  add(CallKind::free_later, op, live->second.slot);
}

void CallListBuilder::complete(OpSpan own) {
  for (const BlockOp& op : own) {
    if (op.kind != BlockOpKind::free_completed) continue;
    const auto live = live_.find(op.address);
    if (live != live_.end() && live->second.pending) end_live(op);
  }
}

void CallListBuilder::end_live(const BlockOp& op) {
  const auto live = live_.find(op.address);
  if (live == live_.end()) return;
  add(live->second.pending ? CallKind::complete : CallKind::free, op, live->second.slot);
  unused_slots_.push_back(live->second.slot);
  live_.erase(live);
}

CallList CallListBuilder::finish() {
  calls_.finish();
  return std::exchange(list_, {});
}

}  // namespace fragscope::replay
