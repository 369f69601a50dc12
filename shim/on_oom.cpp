#include "shim/on_oom.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "shim/caps.h"
#include "shim/cuda_abi.h"
#include "shim/export.h"
#include "shim/policy.h"
#include "shim/process_facts.h"
#include "shim/torch_blocks.h"

namespace fragscope::shim {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
// A collector drains every 20 ms; one that is held up by a slow disk gets this long.
constexpr uint64_t kMostWait = 10 * kSecond;
// One that has not answered once is not waited for like that again.
constexpr uint64_t kMostWaitAfterSilence = kSecond / 10;
constexpr long kStepNs = 1'000'000;

constinit std::atomic<bool> g_allocator_above{false};
constinit std::atomic<bool> g_nobody_answers{false};

bool is_device_alloc(EventKind kind) {
  switch (kind) {
    case EventKind::device_alloc:
    case EventKind::async_alloc:
    case EventKind::array_alloc:
    case EventKind::phys_create:
    case EventKind::managed_alloc:
      return true;
    default:
      return false;
  }
}

// A refusal of CUDA is not the end where an allocator lies above it, which may release and retry.
bool is_the_failure(const Event& event) {
  if (event.kind == EventKind::oom) return true;
  return is_device_alloc(event.kind) && !torch_allocator_seen() && !policy::enabled() &&
         !g_allocator_above.load(std::memory_order_relaxed);
}

template <typename Done>
bool wait_until(Done done, uint64_t most_ns) {
  const uint64_t end = monotonic_ns() + most_ns;
  while (!done()) {
    if (monotonic_ns() > end) return false;
    const timespec step{0, kStepNs};
    nanosleep(&step, nullptr);
  }
  return true;
}

// All that is in the log by now is in the trace file; without a collector the log is the file.
void flush(log::LogHeader& header) {
  const bool supervised = secure_getenv("FRAGSCOPE_LOG_DIR") != nullptr;
  const bool drained = header.read_pos.load(std::memory_order_acquire) != 0;
  if (!supervised && !drained) return;
  const uint64_t number = header.flush_wanted.fetch_add(1, std::memory_order_acq_rel) + 1;
  const auto is_done = [&] { return header.flush_done.load(std::memory_order_acquire) >= number; };
  const bool silent = g_nobody_answers.load(std::memory_order_relaxed);
  const bool done = wait_until(is_done, silent ? kMostWaitAfterSilence : kMostWait);
  g_nobody_answers.store(!done, std::memory_order_relaxed);
}

void tell(log::LogHeader& header, const Event& event, bool stops) {
  header.oom_device.store(event.device, std::memory_order_relaxed);
  header.oom_requested.store(event.requested, std::memory_order_relaxed);
  if (stops) header.ooms_stopped.fetch_add(1, std::memory_order_relaxed);
  header.ooms.fetch_add(1, std::memory_order_release);
}

}  // namespace

void note_allocator_above() noexcept { g_allocator_above.store(true, std::memory_order_relaxed); }

void act_on_oom(Session& session, const Event& event) noexcept {
  if (!may_be_oom(event)) return;
  const enforce::Limits* const limits = caps::limits();
  if (limits == nullptr || limits->on_oom.action == enforce::OomAction::none) return;
  if (!is_the_failure(event)) return;
  const ErrnoKeeper keep;
  const enforce::OnOom wanted = limits->on_oom;
  log::LogHeader& header = *session.writer.header();
  tell(header, event, wanted.action == enforce::OomAction::pause);
  flush(header);
  if (wanted.action == enforce::OomAction::signal) raise(wanted.signal);
  if (wanted.action == enforce::OomAction::pause) kill(getpid(), SIGSTOP);
}

}  // namespace fragscope::shim
