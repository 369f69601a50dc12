#include "shim/policy.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "shim/elf_lookup.h"
#include "shim/export.h"
#include "shim/live_settings.h"
#include "shim/policy_devices.h"
#include "shim/real_api.h"
#include "shim/recorder.h"

namespace fragscope::shim::policy {
namespace {

enum class Mode : int { unasked, none, native, shim };
constinit std::atomic<Mode> g_mode{Mode::unasked};

bool is_automatic(const char* wanted) {
  return wanted != nullptr && std::strcmp(wanted, "auto") == 0;
}

// PyTorch's allocator takes settings of its own, and with its caching off its statistics read 0: it
// is served only when the shim is asked for by name.
Mode ask_environment() {
  const char* const wanted = secure_getenv("FRAGSCOPE_ENFORCE");
  if (wanted == nullptr) return Mode::none;
  if (is_automatic(wanted) && find_object("libc10_cuda.so")) return Mode::native;
  if (!is_automatic(wanted) && std::strcmp(wanted, "shim") != 0) return Mode::none;
  return settings_are_served() ? Mode::shim : Mode::none;
}

Mode current_mode() noexcept {
  Mode mode = g_mode.load(std::memory_order_relaxed);
  if (mode != Mode::unasked) return mode;
  const ErrnoKeeper keep;
  mode = ask_environment();
  Mode first = Mode::unasked;
  return g_mode.compare_exchange_strong(first, mode) ? mode : first;
}

// The current context. The first runtime call of a thread makes its context: what cudaMalloc would
// have done.
void* context_for_calls(const Backend& backend) {
  void* context = current_context();
  if (context == nullptr && backend.library == Library::runtime) {
    static_cast<void>(backend.cuda.free(0));
    context = current_context();
  }
  return context;
}

void tell_source() {
  static constinit std::atomic<uint64_t> told{0};
  Session* const session = get_or_create_session();
  if (session != nullptr && told.exchange(session->id) != session->id) {
    session->write_property("block_source", "api");
  }
}

// `fragscope ctl set`.
void take_live_settings() {
  Session* const session = current_session();
  if (session == nullptr) return;
  char text[log::kMaxRequestBytes + 1];
  const uint32_t number = take_settings(*session, text, sizeof text);
  if (number == 0) return;
  const std::string problem = change_settings(text);
  answer_settings(*session, number, problem.empty(), problem.c_str());
}

// The answer to a free that the allocator refused: CUDA's own, last error included, to a pointer
// that nobody allocated. The base of a segment is a pointer that CUDA would free with all live
// blocks in it, so CUDA must not see the program's.
constexpr DevicePtr invalid_pointer(DevicePtr address) { return address + 1; }

bool is_no_block(enforce::Freed freed) {
  return freed == enforce::Freed::kForeign || freed == enforce::Freed::kInside;
}

// This thread's calls are not held against captures of other threads while it lives. Inactive: the
// thread works under a capture itself.
class OutsideCaptures {
 public:
  explicit OutsideCaptures(const Backend& backend) : exchange_(backend.cuda.exchange_capture_mode) {
    if (exchange_ == nullptr) return;
    changed_ = exchange_(&mode_) == kSuccess;
    under_capture_ = changed_ && mode_ == kRelaxed;
  }
  ~OutsideCaptures() {
    if (changed_) static_cast<void>(exchange_(&mode_));
  }
  OutsideCaptures(const OutsideCaptures&) = delete;
  OutsideCaptures& operator=(const OutsideCaptures&) = delete;

  bool active() const { return !under_capture_; }

 private:
  static constexpr int kRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
  int (*exchange_)(int* mode);
  int mode_ = kRelaxed;  // then the one before
  bool changed_ = false;
  bool under_capture_ = false;
};

bool takes_device_memory(const Event& event) {
  if (event.requested != kUnknown && event.requested > enforce::kMaxRequest) return false;
  return event.kind != EventKind::pinned_alloc && event.kind != EventKind::pinned_register;
}

// CUDA does not know the stream. A thread without a context has only default streams, or is not
// asked.
bool is_unknown(Stream stream) {
  constexpr int kErrorInvalidHandle = 400;
  if (current_context() == nullptr) return false;
  static const auto get_flags =
      reinterpret_cast<int (*)(Stream, unsigned*)>(driver_function("cuStreamGetFlags"));
  unsigned flags = 0;
  return get_flags != nullptr && get_flags(stream, &flags) == kErrorInvalidHandle;
}

void tell_refused_export(DevicePtr address) {
  static constinit std::atomic<bool> told{false};
  if (Session* const session = current_session()) {
    session->write_property("enforce_refused_ipc", address);
  }
  if (told.exchange(true)) return;
  constexpr char kText[] =
      "fragscope: cudaIpcGetMemHandle of a served block is refused (invalid value): a handle names "
      "a whole segment; run programs that share memory so without --enforce=shim\n";
  static_cast<void>(!write(STDERR_FILENO, kText, sizeof kText - 1));
}

}  // namespace

bool enabled() noexcept { return current_mode() == Mode::shim; }

const char* mode() noexcept {
  switch (current_mode()) {
    case Mode::shim:
      return "shim";
    case Mode::native:
      return "native";
    default:
      return "none";
  }
}

std::string problem() {
  const char* const wanted = secure_getenv("FRAGSCOPE_ENFORCE");
  if (wanted == nullptr || current_mode() != Mode::none) return {};
  if (!is_automatic(wanted) && std::strcmp(wanted, "shim") != 0) {
    return "FRAGSCOPE_ENFORCE='" + std::string(wanted) + "' is neither shim nor auto";
  }
  return "FRAGSCOPE_ALLOC_CONF: " + settings_problem();
}

void leave_to_program(bool even_if_named) noexcept {
  if (!even_if_named && !is_automatic(secure_getenv("FRAGSCOPE_ENFORCE"))) return;
  Mode first = Mode::unasked;
  g_mode.compare_exchange_strong(first, Mode::native);
}

log::Enforcement who_enforces() noexcept {
  switch (current_mode()) {
    case Mode::shim:
      return log::Enforcement::shim;
    case Mode::native:
      return log::Enforcement::native;
    default:
      return log::Enforcement::none;
  }
}

bool allocate(HookId id, RealMalloc real, DevicePtr* out, size_t bytes, int& result) noexcept try {
  if (out == nullptr || bytes == 0 || bytes > enforce::kMaxRequest) return false;
  const ErrnoKeeper keep;
  const Backend* const backend = backend_of(info(id).library, reinterpret_cast<const void*>(real));
  // Another preload between us and CUDA: its functions come alone and are not split from it.
  if (backend == nullptr || backend->cuda.malloc != real) return false;
  void* const handle = context_for_calls(*backend);
  const int ordinal = current_device();
  if (handle == nullptr || ordinal < 0) return false;
  ServedContext* const context = context_for(ordinal, *backend, handle);
  if (context == nullptr) return false;
  tell_source();
  take_live_settings();
  const RecordedDevice::Calling calling(*backend);
  const enforce::Served served = context->allocator.allocate(bytes, 0);
  *out = served.address;
  result = served.result;
  return true;
} catch (...) {  // no memory for the books
  return false;
}

bool release(HookId id, RealFree real, DevicePtr address, int& result) noexcept try {
  if (address == 0) return false;
  const ErrnoKeeper keep;
  enforce::Ownership what{};
  ServedContext* const context = owner_of(address, what);
  if (context == nullptr) return false;
  const Backend* const backend = backend_of(info(id).library, reinterpret_cast<const void*>(real));
  if (backend == nullptr) return false;
  const RecordedDevice::Calling calling(*backend);
  if (is_no_block(context->allocator.release_after_device(address, result))) {
    result = real(invalid_pointer(address));
  }
  return true;
} catch (...) {
  return false;
}

bool release_async(HookId id, RealFreeAsync real, DevicePtr address, Stream stream,
                   int& result) noexcept try {
  if (address == 0) return false;
  const ErrnoKeeper keep;
  enforce::Ownership what{};
  ServedContext* const context = owner_of(address, what);
  if (context == nullptr) return false;
  const Backend* const backend = backend_of(info(id).library, reinterpret_cast<const void*>(real));
  if (backend == nullptr) return false;
  const RecordedDevice::Calling calling(*backend);
  if (is_unknown(stream)) {  // CUDA's own answer to the stream; the block stays
    result = real(invalid_pointer(address), stream);
    return true;
  }
  result = kSuccess;
  const auto freed =
      context->allocator.release_after_stream(address, reinterpret_cast<uintptr_t>(stream));
  if (is_no_block(freed)) result = real(invalid_pointer(address), stream);
  return true;
} catch (...) {
  return false;
}

bool refuse_export(HookId, RealExport real, IpcHandle* out, DevicePtr address, int& result) noexcept
    try {
  const ErrnoKeeper keep;
  enforce::Ownership what{};
  ServedContext* const context = owner_of(address, what);
  if (context == nullptr) return false;
  const auto segment = context->allocator.base_of(address);
  if (what == enforce::Ownership::kBlock && segment && segment->first == address) return false;
  constexpr DevicePtr kNobodys = 1;
  result = real(out, kNobodys);
  tell_refused_export(address);
  return true;
} catch (...) {
  return false;
}

bool make_room(HookId id, const void* real, const Event& event) noexcept try {
  if (!takes_device_memory(event)) return false;
  const ErrnoKeeper keep;
  const Backend* const backend = backend_of(info(id).library, real);
  if (backend == nullptr) return false;
  const RecordedDevice::Calling calling(*backend);
  const OutsideCaptures outside(*backend);
  if (!outside.active()) return false;
  const bool named = event.kind == EventKind::phys_create && event.device >= 0;
  bool made = false;
  for_each_context(named ? event.device : current_device(), [&made](ServedContext& context) {
    made = context.allocator.give_back_idle() || made;
  });
  return made;
} catch (...) {
  return false;
}

void forget_last_error(HookId id, const void* real) noexcept {
  const ErrnoKeeper keep;
  const Backend* const backend = backend_of(info(id).library, real);
  if (backend == nullptr || backend->cuda.take_last_error == nullptr) return;
  static_cast<void>(backend->cuda.take_last_error());
}

void forget_context(const void* context) noexcept try {
  if (g_mode.load(std::memory_order_relaxed) == Mode::shim) drop_contexts(context, kUnknownDevice);
} catch (...) {
  return;
}

void forget_device(int device) noexcept try {
  if (g_mode.load(std::memory_order_relaxed) == Mode::shim) drop_contexts(nullptr, device);
} catch (...) {
  return;
}

}  // namespace fragscope::shim::policy
