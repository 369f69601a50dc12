#include "metrics/failed_calls.h"

#include <algorithm>

#include "event/event_names.h"

namespace fragscope::metrics {
namespace {

constexpr int32_t kOutOfMemory = 2;

bool is_probe(const Event& event) {
  return event.kind == EventKind::phys_create && event.result != kOutOfMemory &&
         event.aux2 != kUnknown && event.aux2 != 0;
}

}  // namespace

void FailedCalls::feed(const Event& event, uint64_t held) {
  if (plane_of(event.kind) != Plane::driver) return;
  if (event.result == 0 || event.result == kResultPending) {
    const bool told = event.kind == EventKind::memory_info && event.aux != kUnknown;
    if (told) last_free_[event.device] = event.aux;
    return;
  }
  ++count_;
  const bool probe = is_probe(event);
  if (probe) ++probes_;
  FailedCall& call = calls_[{event.api, event.result, probe}];
  if (call.count++ == 0) {
    call.api = event.api;
    call.kind = event.kind;
    call.result = event.result;
    call.probe = probe;
    call.seq = event.seq;
    call.time_ns = event.time_ns;
    call.device = event.device;
    call.stack = event.stack;
    call.held_bytes = held;
    const auto told = last_free_.find(event.device);
    if (told != last_free_.end()) call.free_bytes = told->second;
  }
  const uint64_t bytes = event.size != kUnknown ? event.size : event.requested;
  if (bytes != kUnknown) call.largest_bytes = std::max(call.largest_bytes.value_or(0), bytes);
}

std::vector<FailedCall> FailedCalls::by_function() const {
  std::vector<FailedCall> calls;
  for (const auto& [key, call] : calls_) calls.push_back(call);
  std::stable_sort(calls.begin(), calls.end(), [](const FailedCall& a, const FailedCall& b) {
    return a.probe != b.probe ? b.probe : a.count > b.count;
  });
  return calls;
}

}  // namespace fragscope::metrics
