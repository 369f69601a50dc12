#include "metrics/pinned_bytes.h"

#include <algorithm>
#include <bit>

#include "model/version_profile.h"

namespace fragscope::metrics {
namespace {

// Of a block of `size` bytes: the smallest request that is rounded up to it is size / 2 + 1.
uint64_t most_padding_of(uint64_t size) {
  return std::has_single_bit(size) && size > 1 ? size / 2 - 1 : 0;
}

}  // namespace

PinnedBytes::PinnedBytes(const replay::ProcessFacts& facts) : facts_(facts) {
  if (facts.torch_cuda_stacks) torch_host_.emplace();
  const auto match = model::find_version_profile(facts.property("torch_version").value_or(""));
  any_size_ = match.exact && match.profile->has_pinned_limits;
}

void PinnedBytes::feed(const Event& event) {
  if (event.result != 0 && event.result != kResultPending) return;
  switch (event.kind) {
    case EventKind::pinned_alloc:
    case EventKind::pinned_register:
      begin(event);
      return;
    case EventKind::pinned_free:
    case EventKind::pinned_unregister:
      end(event.address);
      return;
    case EventKind::context_destroy:
      end_context(event);
      return;
    default:
      return;
  }
}

bool PinnedBytes::is_torch_host(const Event& event) const {
  if (!torch_host_ || facts_.torch_cuda_stacks->count(event.stack) == 0) return false;
  return any_size_ || std::has_single_bit(event.size);
}

void PinnedBytes::begin(const Event& event) {
  if (event.address == kUnknown || event.size == kUnknown || event.address == 0) return;
  end(event.address);
  const bool torch_host = is_torch_host(event);
  live_[event.address] = {event.size, event.device, event.kind == EventKind::pinned_register,
                          event.aux,  event.stack,  torch_host};
  gauge_.rise(event.size, event.seq);
  Held& held = by_stack_[event.stack];
  held.bytes += event.size;
  ++held.count;
  held.last_seq = event.seq;
  held.torch_host = torch_host;
  if (torch_host) {
    torch_host_->held.rise(event.size, event.seq);
    torch_host_->most_padding.rise(most_padding_of(event.size), event.seq);
  }
  at_new_peak_ = at_new_peak_ || gauge_.peak_seq() == event.seq;
}

void PinnedBytes::end(uint64_t address) {
  const auto at = live_.find(address);
  if (at == live_.end()) return;
  forget(at->second);
  live_.erase(at);
}

// A picture of the peak is taken when it is left, once for each climb.
void PinnedBytes::forget(const Allocation& allocation) {
  if (at_new_peak_) keep_peak();
  gauge_.fall(allocation.size);
  Held& held = by_stack_[allocation.stack];
  held.bytes -= allocation.size;
  --held.count;
  if (!allocation.torch_host) return;
  torch_host_->held.fall(allocation.size);
  torch_host_->most_padding.fall(most_padding_of(allocation.size));
}

void PinnedBytes::keep_peak() {
  at_peak_ = by_stack_;
  at_new_peak_ = false;
}

// With an address: a context that the program made itself, and what names it as its own.
void PinnedBytes::end_context(const Event& event) {
  for (auto at = live_.begin(); at != live_.end();) {
    const Allocation& allocation = at->second;
    const bool ends = event.address == kUnknown ? allocation.device == event.device
                                                : allocation.context == event.address;
    if (!ends || allocation.registered) {
      ++at;
      continue;
    }
    forget(allocation);
    at = live_.erase(at);
  }
}

std::vector<PinnedHolder> PinnedBytes::holders() const {
  const auto& peak = at_new_peak_ ? by_stack_ : at_peak_;
  std::vector<PinnedHolder> holders;
  for (const auto& [stack, now] : by_stack_) {
    PinnedHolder holder{stack, 0, 0, now.bytes, now.last_seq, now.torch_host};
    const auto then = peak.find(stack);
    if (then != peak.end()) {
      holder.peak_bytes = then->second.bytes;
      holder.peak_count = then->second.count;
    }
    if (holder.peak_bytes > 0 || holder.final_bytes > 0) holders.push_back(holder);
  }
  std::stable_sort(holders.begin(), holders.end(), [](const auto& left, const auto& right) {
    return std::pair(left.peak_bytes, left.final_bytes) >
           std::pair(right.peak_bytes, right.final_bytes);
  });
  return holders;
}

}  // namespace fragscope::metrics
