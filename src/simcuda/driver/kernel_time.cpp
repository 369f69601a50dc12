// Kernels that take time: with kernel_us configured each one keeps its stream busy for so long
// after what the stream already has to do. Launches return at once, as on a card; events, queries
// and synchronising calls are ready when their stream has got that far, by CLOCK_MONOTONIC. An
// assumption, the same for every kernel: for measurements of what a host program's own time matters
// beside the device's. A graph counts as one kernel; copies and fills take none; host functions run
// at once; freeing memory does not wait.
#include <time.h>

#include <algorithm>
#include <cerrno>

#include "simcuda/clock.h"
#include "simcuda/driver/driver_state.h"

namespace fragscope::simcuda {

namespace {

// `due`: time of what is waited for, asked under the lock. Waiting calls are not counted as calls.
template <typename Due>
void await(Due due) {
  DriverState* state = nullptr;
  if (ready_state(state) != CUDA_SUCCESS || state->config.kernel_us == 0) return;
  uint64_t until = 0;
  {
    const std::lock_guard<std::mutex> guard(state->lock);
    if (!state->captures.empty()) return;  // such calls are refused, or wait for nothing
    until = due(*state);
  }
  const timespec wanted{static_cast<time_t>(until / kSecondNs),
                        static_cast<long>(until % kSecondNs)};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wanted, nullptr) == EINTR) {
  }
}

}  // namespace

uint64_t operation_ns(const DriverState& state) {
  return std::max<uint64_t>(state.config.kernel_us * 1000, kOperationNs);
}

uint64_t next_start_ns(const CUstream_st& stream) {
  return std::max(stream.busy_until_ns, clock_ns());
}

uint64_t occupy(DriverState& state, CUstream_st& stream) {
  const uint64_t kernel_us = state.config.kernel_us;
  stream.context->device->tick += std::max<uint64_t>(kernel_us, 1);
  if (kernel_us == 0 && g_activity_tap.load(std::memory_order_relaxed) == nullptr) return 0;
  const uint64_t start = next_start_ns(stream);
  if (kernel_us != 0) stream.busy_until_ns = start + kernel_us * 1000;
  return start;
}

uint64_t due_of(DriverState& state, const CUevent_st& event) {
  return event.shared ? state.ledger->event_due(*event.shared) : event.due_ns;
}

bool is_past(const DriverState& state, uint64_t due_ns) {
  return state.config.kernel_us == 0 || due_ns <= clock_ns();
}

void await_stream(CUstream handle) {
  await([handle](DriverState& state) -> uint64_t {
    const CUcontext context = current_context();
    const CUstream stream = context != nullptr ? find_stream(state, context, handle) : nullptr;
    return stream != nullptr ? stream->busy_until_ns : 0;
  });
}

void await_event(CUevent event) {
  await([event](DriverState& state) -> uint64_t {
    return state.events.count(event) != 0 ? due_of(state, *event) : 0;
  });
}

void await_context() {
  await([](DriverState& state) {
    uint64_t until = 0;
    const CUcontext context = current_context();
    if (context == nullptr) return until;
    for_each_stream(state, *context->device,
                    [&](CUstream stream) { until = std::max(until, stream->busy_until_ns); });
    return until;
  });
}

}  // namespace fragscope::simcuda
