// Kernels that take time: with kernel_us configured each one keeps its stream busy for so long
// after what the stream already has to do. Launches return at once, as on a card; events, queries
// and synchronising calls are ready when their stream has got that far, by CLOCK_MONOTONIC. An
// assumption, the same for every kernel: for measurements of what a host program's own time matters
// beside the device's. A graph counts as one kernel; copies and fills take none; host functions run
// at once; freeing memory does not wait.
#include <time.h>

#include <algorithm>
#include <cerrno>

#include "simcuda/driver/driver_state.h"

namespace fragscope::simcuda {

namespace {

constexpr uint64_t kSecond = 1'000'000'000;

uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecond + static_cast<uint64_t>(now.tv_nsec);
}

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
  const timespec wanted{static_cast<time_t>(until / kSecond), static_cast<long>(until % kSecond)};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wanted, nullptr) == EINTR) {
  }
}

}  // namespace

void occupy(DriverState& state, CUstream_st& stream) {
  const uint64_t kernel_us = state.config.kernel_us;
  stream.context->device->tick += std::max<uint64_t>(kernel_us, 1);
  if (kernel_us == 0) return;
  stream.busy_until_ns = std::max(stream.busy_until_ns, now_ns()) + kernel_us * 1000;
}

bool is_past(const DriverState& state, uint64_t due_ns) {
  return state.config.kernel_us == 0 || due_ns <= now_ns();
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
    return state.events.count(event) != 0 ? event->due_ns : 0;
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
