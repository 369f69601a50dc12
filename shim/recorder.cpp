#include "shim/recorder.h"

#include <cstring>

#include "shim/call_stack.h"
#include "shim/coverage.h"
#include "shim/device_facts.h"
#include "shim/export.h"
#include "shim/marks.h"
#include "shim/on_oom.h"
#include "shim/process_facts.h"
#include "shim/python_runtime.h"
#include "shim/real_api.h"

namespace fragscope::shim {
namespace {

// Null until the driver is loaded.
constinit std::atomic<int (*)(int* device)> g_ctx_get_device{nullptr};
constinit std::atomic<int (*)(void** context)> g_ctx_get_current{nullptr};
constinit std::atomic<int (*)(Stream stream, int* status, uint64_t* id, void** graph,
                              const void** dependencies, size_t* count)>
    g_capture_info{nullptr};
constinit std::atomic<int (*)(int device, unsigned* flags, int* active)> g_primary_state{nullptr};
constinit std::atomic<bool> g_several_contexts{false};

template <typename T>
T getter(std::atomic<T>& cell, const char* symbol) {
  T found = cell.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  found = reinterpret_cast<T>(driver_function(symbol));
  cell.store(found, std::memory_order_release);
  return found;
}

uint32_t cached_thread_id(const Session& session) {
  if (t_state.tid_session != session.id) {
    t_state.tid = thread_id();
    t_state.tid_session = session.id;
  }
  return t_state.tid;
}

// Small memory is recorded like all other, without saying who asked for it; what failed is of
// interest whatever its size.
bool is_too_small_for_a_stack(const Settings& settings, const Event& event) {
  if (event.size == kUnknown || event.size >= settings.min_stack_bytes) return false;
  if (event.result != 0 && event.result != kResultPending) return false;
  return event.kind != EventKind::oom;  // marks have no size
}

void attach_stack(Session& session, Event& event) {
  const Settings& settings = session.settings;
  if (!settings.native_stacks && !settings.python_stacks) return;
  if (is_too_small_for_a_stack(settings, event)) return;
  CallStack stack;
  uint64_t python_hash = 0;
  if (settings.python_stacks) {
    const PythonFrames::Answer python =
        session.python.capture({stack.frames, settings.stack_depth},
                               event.tid == session.writer.header()->pid, session.writer);
    stack.count = python.count;
    stack.truncated = python.truncated;
    python_hash = python.hash;
  }
  if (settings.native_stacks) append_native_frames(stack, settings.stack_depth);
  if (stack.count == 0) return;
  const StackTable::Answer answer =
      session.stacks.intern({stack.frames, stack.count}, mix_hash(stack.native_hash, python_hash),
                            unload_generation(), session.writer);
  event.stack = answer.id;
  if (stack.truncated) event.flags |= kFlagStackTruncated;
  if (!answer.is_new) return;
  if (session.modules.refresh(session.writer) && settings.python_stacks) look_for_python();
  if (settings.python_stacks) report_python(session);
}

bool belongs_to_context(EventKind kind) {
  switch (kind) {
    case EventKind::device_alloc:
    case EventKind::managed_alloc:
    case EventKind::pinned_alloc:
    case EventKind::pinned_register:
    case EventKind::array_alloc:
      return true;
    default:
      return false;
  }
}

// What can be told before the place in the log is taken.
void prepare(Session& session, Event& event) {
  event.tid = cached_thread_id(session);
  const bool of_current_device = event.kind != EventKind::context_destroy &&
                                 event.kind != EventKind::mark &&
                                 event.kind != EventKind::graph_trim;
  if (event.device == kUnknownDevice && of_current_device) event.device = current_device();
  if (g_several_contexts.load(std::memory_order_relaxed) && belongs_to_context(event.kind)) {
    const void* const context = current_context();
    if (context != nullptr) event.aux = reinterpret_cast<uintptr_t>(context);
  }
  describe_device(session, event.device);
  if (coverage_total() != session.reported_coverage.load(std::memory_order_relaxed)) {
    report_coverage(session);
  }
  attach_stack(session, event);
}

// Calls that make, map or end memory; the others do not start a recording.
bool is_memory_call(EventKind kind) {
  switch (kind) {
    case EventKind::none:
    case EventKind::context_create:
    case EventKind::context_destroy:
    case EventKind::graph_destroy:
    case EventKind::graph_exec_destroy:
    case EventKind::graph_instantiate:
    case EventKind::graph_trim:
    case EventKind::memory_info:
    case EventKind::stream_create:
    case EventKind::stream_destroy:
    case EventKind::synchronize:
    case EventKind::current_device:
      return false;
    default:
      return true;
  }
}

}  // namespace

HookScope::HookScope(HookId id, const void* frame) noexcept : id_(id) {
  const auto place = reinterpret_cast<uintptr_t>(frame);
  entered_ = t_state.outer_frame == 0 || place >= t_state.outer_frame;
  outermost_ = entered_ && !t_state.in_shim;
  if (!entered_) return;
  if (t_state.outer_frame != 0) abandon();
  t_state.outer_frame = place;
}

void HookScope::abandon() noexcept {
  t_state.outer_frame = 0;
  close_event(kResultPending);
}

HookScope::~HookScope() {
  if (entered_) t_state.outer_frame = 0;
  Session* const session = current_session();
  if (session == nullptr) return;
  session->writer.header()->api_calls[static_cast<size_t>(id_)].fetch_add(
      1, std::memory_order_relaxed);
}

int fragscope_unwind_notice(int, int actions, uint64_t, void*, void*) noexcept {
  constexpr int kCleanupPhase = 2;    // _UA_CLEANUP_PHASE
  constexpr int kContinueUnwind = 8;  // _URC_CONTINUE_UNWIND
  if ((actions & kCleanupPhase) != 0) HookScope::abandon();
  return kContinueUnwind;
}

int32_t current_device() noexcept {
  const auto get = getter(g_ctx_get_device, "cuCtxGetDevice");
  int device = 0;
  return get != nullptr && get(&device) == kSuccess ? device : kUnknownDevice;
}

void* current_context() noexcept {
  const auto get = getter(g_ctx_get_current, "cuCtxGetCurrent");
  void* context = nullptr;
  return get != nullptr && get(&context) == kSuccess ? context : nullptr;
}

const void* capturing_graph(Stream stream) noexcept {
  if (reinterpret_cast<uintptr_t>(stream) <= kLegacyStream) return nullptr;
  const auto get = getter(g_capture_info, "cuStreamGetCaptureInfo_v2");
  int status = 0;
  void* graph = nullptr;
  if (get == nullptr || get(stream, &status, nullptr, &graph, nullptr, nullptr) != kSuccess) {
    return nullptr;
  }
  return status == kCaptureActive ? graph : nullptr;
}

bool is_primary_active(int device) noexcept {
  const auto get = getter(g_primary_state, "cuDevicePrimaryCtxGetState");
  unsigned flags = 0;
  int active = 0;
  return get != nullptr && get(device, &flags, &active) == kSuccess && active != 0;
}

void note_several_contexts() noexcept { g_several_contexts.store(true, std::memory_order_relaxed); }

Session* session_for(EventKind kind) noexcept {
  return is_memory_call(kind) ? get_or_create_session() : current_session();
}

namespace {

// What was asked for from outside (log_control.h).
bool is_paused(const Session& session) {
  log::LogHeader& header = *session.writer.header();
  if (header.paused.load(std::memory_order_relaxed) == 0) return false;
  header.skipped_events.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// One thread takes it; the text stands still until it says that it is done.
void take_requested_mark(Session& session) {
  log::LogHeader& header = *session.writer.header();
  const uint32_t wanted = header.mark_wanted.load(std::memory_order_acquire);
  uint32_t claimed = header.mark_claimed.load(std::memory_order_relaxed);
  if (claimed == wanted || !header.mark_claimed.compare_exchange_strong(claimed, wanted)) return;
  log_requested_mark(session, {header.mark_text, strnlen(header.mark_text, log::kMaxRequestBytes)});
  header.mark_done.store(wanted, std::memory_order_release);
}

}  // namespace

void submit(Session& session, Event& event) noexcept {
  if (is_paused(session)) return;
  const ErrnoKeeper keep;
  const bool outer = t_state.in_shim;
  t_state.in_shim = true;
  take_requested_mark(session);
  prepare(session, event);
  event.time_ns = monotonic_ns();
  session.writer.write(event);
  t_state.in_shim = outer;
  if (may_be_oom(event)) act_on_oom(session, event);
}

void open_event(Event& event) noexcept {
  const ErrnoKeeper keep;
  Session* const session = session_for(event.kind);
  if (session == nullptr || is_paused(*session)) return;
  t_state.in_shim = true;
  take_requested_mark(*session);
  prepare(*session, event);
  event.time_ns = monotonic_ns();
  const log::LogWriter::Ticket ticket = session->writer.reserve();
  session->writer.commit(ticket, event, false);
  t_state.open = {ticket, session->id};
  t_state.in_shim = false;
}

void close_event(int result) noexcept {
  const OpenEvent open = t_state.open;
  t_state.open.session = 0;
  // A child that forked inside the call (in a callback) must not write to the parent's log.
  Session* const session = current_session();
  if (open.session == 0 || session == nullptr || session->id != open.session) return;
  session->writer.finish(open.ticket, result);
}

}  // namespace fragscope::shim
