#include "replay/what_if.h"

#include <algorithm>

#include "replay/figures_of.h"

namespace fragscope::replay {
namespace {

constexpr uint64_t kLargestRequest = 1ull << 60;  // PyTorch refuses more without an attempt

int window_of(int device) { return std::clamp(device, 0, model::kMaxDevices - 1); }

}  // namespace

DeviceWhatIf::DeviceWhatIf(const WhatIfSettings& settings)
    : capacity_(settings.capacity),
      memory_(window_of(settings.device), capacity_),
      segments_(memory_, capacity_, settings.total_bytes.value_or(settings.capacity)),
      allocator_(settings.config, *settings.profile, segments_),
      calls_(*this) {}

// Makes the request of `op`; a refusal becomes an entry of ooms_.
model::MallocResult DeviceWhatIf::request(const BlockOp& op) {
  const uint64_t bytes = op.request();
  const uint64_t stream = op.stream == kUnknown ? 0 : op.stream;
  if (bytes == 0 || bytes >= kLargestRequest) return {};
  const model::MallocResult result = allocator_.malloc(bytes, stream);
  if (result.outcome == model::MallocOutcome::kOutOfMemory ||
      result.outcome == model::MallocOutcome::kRejected) {
    OomFact fact{op.seq, op.time_ns, op.stack, allocator_.round_size(bytes), std::nullopt};
    fact.device_free = segments_.memory_info().free;
    ooms_.push_back(fact);
    keep_first(at_oom_, op.seq, op.time_ns, allocator_);
  }
  return result;
}

void DeviceWhatIf::on_alloc(const BlockOp& op, OpSpan own) {
  complete(own);
  if (op.requested == kUnknown) sizes_known_ = false;
  end_live(op.address);
  const model::MallocResult result = request(op);
  if (!result.ok()) return;
  live_[op.address] = {result.block, 0, false};
}

void DeviceWhatIf::on_oom(const BlockOp& op, OpSpan own) {
  complete(own);
  const model::MallocResult result = request(op);
  if (!result.ok()) return;
  ++ooms_avoided_;
  keep_first(at_oom_, op.seq, op.time_ns, allocator_);
  allocator_.free_block(result.block);
}

void DeviceWhatIf::on_empty_cache(OpSpan own) {
  complete(own);
  allocator_.empty_cache();
}

void DeviceWhatIf::on_free(const BlockOp& op) {
  const auto live = live_.find(op.address);
  if (live == live_.end() || live->second.pending) return;
  allocator_.free_block(live->second.block);
  live_.erase(live);
}

void DeviceWhatIf::on_free_pending(const BlockOp& op) {
  const auto live = live_.find(op.address);
  if (live == live_.end() || live->second.pending) return;
  live->second.pending = true;
  allocator_.free_pending(live->second.block);
  live->second.generation = allocator_.blocks()[live->second.block].generation;
}

void DeviceWhatIf::complete(OpSpan own) {
  for (const BlockOp& op : own) {
    if (op.kind != BlockOpKind::free_completed) continue;
    const auto live = live_.find(op.address);
    if (live == live_.end() || !live->second.pending) continue;
    allocator_.complete_block(live->second.block, live->second.generation);
    live_.erase(live);
  }
}

// The address is handed out again, so whatever had it is gone: its free was not recorded.
void DeviceWhatIf::end_live(uint64_t address) {
  const auto live = live_.find(address);
  if (live == live_.end()) return;
  if (live->second.pending) {
    allocator_.complete_block(live->second.block, live->second.generation);
  } else {
    allocator_.free_block(live->second.block);
  }
  live_.erase(live);
}

ReplayFigures DeviceWhatIf::figures() const {
  ReplayFigures figures = figures_of(allocator_.stats(), {});
  figures.ooms = ooms_;
  if (!sizes_known_) figures.requested.reset();
  return figures;
}

}  // namespace fragscope::replay
