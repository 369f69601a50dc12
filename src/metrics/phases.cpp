#include "metrics/phases.h"

#include <algorithm>

namespace fragscope::metrics {
namespace {

bool is_range(EventKind kind) {
  return kind == EventKind::range_push || kind == EventKind::range_pop ||
         kind == EventKind::range_start || kind == EventKind::range_end;
}

}  // namespace

bool Phases::wants(const Event& event) const {
  if (is_range(event.kind) || !started_.empty()) return true;
  return std::any_of(pushed_.begin(), pushed_.end(),
                     [](const auto& entry) { return !entry.second.empty(); });
}

void Phases::feed(const Event& event, const HeldBytes& held) {
  last_ = held;
  const auto raise = [&held](Range& range) {
    range.driver_peak = std::max(range.driver_peak, held.driver);
    if (held.allocated) {
      range.allocated_peak = std::max(range.allocated_peak.value_or(0), *held.allocated);
    }
  };
  for (auto& [thread, ranges] : pushed_) std::for_each(ranges.begin(), ranges.end(), raise);
  for (auto& [number, range] : started_) raise(range);
  if (event.kind == EventKind::range_push) {
    pushed_[event.tid].push_back(open(event, held));
  } else if (event.kind == EventKind::range_start) {
    started_[event.aux] = open(event, held);
  } else if (event.kind == EventKind::range_pop) {
    std::vector<Range>& ranges = pushed_[event.tid];
    if (ranges.empty()) return;
    close(ranges.back(), event.time_ns);
    ranges.pop_back();
  } else if (event.kind == EventKind::range_end) {
    const auto at = started_.find(event.aux);
    if (at == started_.end()) return;
    close(at->second, event.time_ns);
    started_.erase(at);
  }
}

Phases::Range Phases::open(const Event& event, const HeldBytes& held) {
  Phase& phase = phases_[event.text];
  phase.text = event.text;
  if (phase.first_seq == 0) phase.first_seq = event.seq;
  return {event.text, event.time_ns, held.driver, held.allocated, held.allocated};
}

void Phases::close(const Range& range, uint64_t end_ns) {
  Phase& phase = phases_[range.text];
  ++phase.count;
  phase.total_ns += end_ns - std::min(range.start_ns, end_ns);
  phase.driver_peak = std::max(phase.driver_peak, range.driver_peak);
  if (range.allocated_peak) {
    phase.allocated_peak = std::max(phase.allocated_peak.value_or(0), *range.allocated_peak);
  }
  if (!last_.allocated) return;
  const uint64_t start = range.allocated_start.value_or(0);
  phase.allocated_growth =
      phase.allocated_growth.value_or(0) + static_cast<int64_t>(*last_.allocated - start);
}

std::vector<Phase> Phases::finish(uint64_t end_ns) {
  for (const auto& [thread, ranges] : pushed_) {
    for (const Range& range : ranges) close(range, end_ns);
  }
  for (const auto& [number, range] : started_) close(range, end_ns);
  pushed_.clear();
  started_.clear();
  std::vector<Phase> result;
  for (const auto& [text, phase] : phases_) result.push_back(phase);
  std::sort(result.begin(), result.end(),
            [](const Phase& a, const Phase& b) { return a.first_seq < b.first_seq; });
  return result;
}

}  // namespace fragscope::metrics
