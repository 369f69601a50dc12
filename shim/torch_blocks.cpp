#include "shim/torch_blocks.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "shim/call_stack.h"
#include "shim/elf_lookup.h"
#include "shim/export.h"
#include "shim/marks.h"
#include "shim/policy.h"
#include "shim/recorder.h"
#include "shim/torch_adaptor/torch_adaptor.h"

namespace fragscope::shim {
namespace {

constexpr int8_t kTorchCuda = 1;  // c10::DeviceType::CUDA

// Where the blocks of this process come from. A forked child inherits the allocator with its
// tracker, so this is not part of the session; which session has been told is.
enum class Source : int { unknown, searching, report, adaptor };
constinit std::atomic<Source> g_source{Source::unknown};
constinit std::atomic<const char*> g_torch_version{nullptr};
constinit std::atomic<uint64_t> g_told_session{0};

constinit std::atomic<bool> g_allocator_seen{false};
constinit std::atomic<uint32_t> g_settings_changes{0};

uint32_t source_flag() {
  return g_source.load(std::memory_order_relaxed) == Source::adaptor ? kFlagSourceAdaptor
                                                                     : kFlagSourceReport;
}

// The pool of a tracker's entry, as events hold it; false: not told, or no name of PyTorch's.
bool packed_pool(const fragscope_torch_entry& entry, uint32_t& pool) {
  return entry.pool_known != 0 && pack_pool({entry.pool_first, entry.pool_second}, pool);
}

void write_block(Event& event) {
  if (Session* const session = session_for(event.kind)) submit(*session, event);
}

void put_held_pool(Event& event, const HeldAlloc& held) {
  if (!held.pool_known) return;
  event.flags |= kFlagPool;
  event.text = held.pool;
}

// What the tracker said of a block for which no report came.
void flush_held() {
  HeldAlloc& held = t_state.held;
  if (!held.valid) return;
  held.valid = false;
  Event event;
  event.kind = EventKind::alloc;
  event.device = held.device;
  event.address = held.address;
  event.requested = held.requested;
  event.stream = held.stream;
  event.flags = kFlagSourceAdaptor;
  put_held_pool(event, held);
  write_block(event);
}

EventKind kind_of(int32_t action) {
  switch (action) {
    case FRAGSCOPE_TORCH_FREE_REQUESTED:
      return EventKind::free_requested;
    case FRAGSCOPE_TORCH_FREE_COMPLETED:
      return EventKind::free_completed;
    case FRAGSCOPE_TORCH_SEGMENT_ALLOC:
      return EventKind::segment_alloc;
    case FRAGSCOPE_TORCH_SEGMENT_FREE:
      return EventKind::segment_free;
    case FRAGSCOPE_TORCH_SEGMENT_MAP:
      return EventKind::segment_map;
    case FRAGSCOPE_TORCH_SEGMENT_UNMAP:
      return EventKind::segment_unmap;
    case FRAGSCOPE_TORCH_SNAPSHOT:
      return EventKind::snapshot;
    case FRAGSCOPE_TORCH_OOM:
      return EventKind::oom;
    case FRAGSCOPE_TORCH_ANNOTATE:
      return EventKind::annotate;
    default:
      return EventKind::none;
  }
}

void fill_from_entry(Event& event, const fragscope_torch_entry& entry) {
  event.device = entry.device;
  event.stream = entry.stream;
  event.flags = kFlagSourceAdaptor;
  const bool has_pool = event.kind != EventKind::annotate && event.kind != EventKind::snapshot;
  if (has_pool && packed_pool(entry, event.text)) event.flags |= kFlagPool;
  switch (event.kind) {
    case EventKind::free_requested:
    case EventKind::free_completed:
      event.address = entry.address;
      event.requested = entry.size;
      break;
    case EventKind::oom:
      event.requested = entry.size;
      event.aux = entry.address;
      break;
    case EventKind::snapshot:
      event.stream = kUnknown;
      break;
    case EventKind::annotate:
      event.address = entry.address;
      event.size = entry.size;
      break;
    default:  // segments
      event.address = entry.address;
      event.size = event.requested = entry.size;
      break;
  }
}

void on_tracker_entry(const fragscope_torch_entry* entry) {
  const ErrnoKeeper keep;
  if (t_state.in_shim) return;
  flush_held();
  if (entry->action == FRAGSCOPE_TORCH_ALLOC) {
    HeldAlloc& held = t_state.held;
    held = {true, entry->device, entry->address, entry->size, entry->stream, 0, false};
    held.pool_known = packed_pool(*entry, held.pool);
    return;
  }
  Event event;
  event.kind = kind_of(entry->action);
  if (event.kind == EventKind::none) return;
  fill_from_entry(event, *entry);
  write_block(event);
}

// Settings that the program gave its allocator itself.
void on_torch_settings(const char* text, uint64_t bytes) {
  const ErrnoKeeper keep;
  Session* const session = current_session();
  if (session == nullptr || t_state.in_shim || policy::enabled()) return;
  log_changed_settings(*session, {text, static_cast<size_t>(bytes)},
                       g_settings_changes.fetch_add(1, std::memory_order_relaxed) + 1);
}

const fragscope_torch_host kHost = {FRAGSCOPE_TORCH_ADAPTOR_VERSION, on_tracker_entry,
                                    on_torch_settings};

// <directory>/<build-id>-<version of the adaptor>.so; false when there is no such place.
bool adaptor_path(char (&path)[4096], const char* id) {
  const char* const directory = secure_getenv("FRAGSCOPE_TORCH_ADAPTOR_DIR");
  const char* const cache = secure_getenv("XDG_CACHE_HOME");
  const char* const home = secure_getenv("HOME");
  int length = 0;
  if (directory != nullptr) {
    length = std::snprintf(path, sizeof path, "%s/%s-%u.so", directory, id,
                           FRAGSCOPE_TORCH_ADAPTOR_VERSION);
  } else if (cache != nullptr && cache[0] == '/') {
    length = std::snprintf(path, sizeof path, "%s/fragscope/adaptors/%s-%u.so", cache, id,
                           FRAGSCOPE_TORCH_ADAPTOR_VERSION);
  } else if (home != nullptr) {
    length = std::snprintf(path, sizeof path, "%s/.cache/fragscope/adaptors/%s-%u.so", home, id,
                           FRAGSCOPE_TORCH_ADAPTOR_VERSION);
  }
  return length > 0 && static_cast<size_t>(length) < sizeof path;
}

using StartAdaptor = decltype(&fragscope_torch_adaptor_start);
constinit std::atomic<StartAdaptor> g_start_adaptor{nullptr};
constinit std::atomic<bool> g_adaptor_sought{false};

// The adaptor of the loaded torch, if there is one; asks the loader once.
StartAdaptor load_adaptor(const LoadedObject& torch) {
  if (g_adaptor_sought.exchange(true, std::memory_order_acq_rel)) {
    return g_start_adaptor.load(std::memory_order_acquire);
  }
  char id[65] = {};
  char path[4096];
  build_id(torch, id);
  if (id[0] == '\0' || !adaptor_path(path, id)) return nullptr;
  void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    static_cast<void>(dlerror());  // ours, not the host's
    return nullptr;
  }
  const auto start = reinterpret_cast<StartAdaptor>(dlsym(handle, "fragscope_torch_adaptor_start"));
  g_start_adaptor.store(start, std::memory_order_release);
  return start;
}

bool start_adaptor() {
  StartAdaptor start = g_start_adaptor.load(std::memory_order_acquire);
  if (start == nullptr) {
    const LoadedObject torch = find_object("libc10_cuda.so");
    if (torch) start = load_adaptor(torch);
  }
  const fragscope_torch_adaptor* const self = start != nullptr ? start(&kHost) : nullptr;
  if (self == nullptr || self->version != FRAGSCOPE_TORCH_ADAPTOR_VERSION) return false;
  const LoadedObject adaptor = object_of(reinterpret_cast<const void*>(start));
  leave_out_frames(adaptor.start, adaptor.end);
  g_torch_version.store(self->torch_version, std::memory_order_release);
  return true;
}

// The allocator's settings as torch has read them by now; a replay needs them.
void tell_setting(Session& session, const char* key, const char* variable) {
  const char* const value = secure_getenv(variable);
  if (value != nullptr) session.write_property(key, value);
}

void tell_source(Session& session) {
  const Source source = g_source.load(std::memory_order_acquire);
  if (source < Source::report) return;
  if (g_told_session.exchange(session.id, std::memory_order_relaxed) == session.id) return;
  session.write_property("block_source", source == Source::adaptor ? "adaptor" : "report");
  const char* const version = g_torch_version.load(std::memory_order_acquire);
  if (version != nullptr) session.write_property("torch_version", version);
  tell_setting(session, "alloc_conf", "PYTORCH_CUDA_ALLOC_CONF");
  tell_setting(session, "alloc_conf.generic", "PYTORCH_ALLOC_CONF");
}

// The allocator's first segment, else the first report decides. Its thread holds one allocator's
// lock; others go on with reports.
void choose_source(Session& session) {
  Source expected = Source::unknown;
  if (g_source.compare_exchange_strong(expected, Source::searching)) {
    const bool adaptor = start_adaptor();
    g_source.store(adaptor ? Source::adaptor : Source::report, std::memory_order_release);
  }
  if (g_told_session.load(std::memory_order_relaxed) != session.id) tell_source(session);
}

// Size and totals come from the report, the rest from the tracker if it saw this block.
void report_alloc(Session& session, const void* address, int64_t bytes, uint64_t allocated,
                  uint64_t reserved, int32_t device) {
  Event event;
  event.kind = EventKind::alloc;
  event.device = device;
  event.address = reinterpret_cast<uint64_t>(address);
  event.size = static_cast<uint64_t>(bytes);
  event.aux = allocated;
  event.aux2 = reserved;
  event.flags = kFlagSourceReport;
  HeldAlloc& held = t_state.held;
  if (held.valid && held.address == event.address) {
    held.valid = false;
    event.requested = held.requested;
    event.stream = held.stream;
    event.flags = kFlagSourceAdaptor;
    put_held_pool(event, held);
  } else {
    flush_held();
  }
  submit(session, event);
}

// The tracker tells frees itself, and better.
void report_free(Session& session, const void* address, int64_t bytes, uint64_t allocated,
                 uint64_t reserved, int32_t device) {
  if (g_source.load(std::memory_order_relaxed) == Source::adaptor) return;
  Event event;
  event.kind = EventKind::free_requested;
  event.device = device;
  event.address = reinterpret_cast<uint64_t>(address);
  event.size = static_cast<uint64_t>(-bytes);
  event.aux = allocated;
  event.aux2 = reserved;
  event.flags = source_flag();
  submit(session, event);
}

}  // namespace

void load_torch_adaptor() noexcept {
  if (g_adaptor_sought.load(std::memory_order_relaxed)) return;
  const LoadedObject torch = find_object("libc10_cuda.so");
  if (torch) static_cast<void>(load_adaptor(torch));
}

void look_for_torch(const void* caller) noexcept {
  if (g_source.load(std::memory_order_relaxed) != Source::unknown) return;
  const LoadedObject object = object_of(caller);
  if (object && std::strcmp(soname(object), "libc10_cuda.so") == 0) {
    g_allocator_seen.store(true, std::memory_order_relaxed);
  }
}

bool torch_allocator_seen() noexcept {
  return g_source.load(std::memory_order_relaxed) != Source::unknown ||
         g_allocator_seen.load(std::memory_order_relaxed);
}

void attach_torch_if_seen() noexcept {
  if (!g_allocator_seen.load(std::memory_order_relaxed)) return;
  g_allocator_seen.store(false, std::memory_order_relaxed);
  if (policy::enabled()) return;  // the block plane is that of the cache below PyTorch's
  const ErrnoKeeper keep;
  if (Session* const session = current_session()) choose_source(*session);
}

void on_torch_memory(const void* address, int64_t bytes, uint64_t allocated, uint64_t reserved,
                     TorchDevice device) noexcept {
  if (device.type != kTorchCuda || t_state.in_shim || policy::enabled()) return;
  const ErrnoKeeper keep;
  Session* const session = session_for(EventKind::alloc);
  if (session == nullptr) return;
  choose_source(*session);
  if (bytes >= 0) {
    report_alloc(*session, address, bytes, allocated, reserved, device.index);
  } else {
    report_free(*session, address, bytes, allocated, reserved, device.index);
  }
}

void on_torch_oom(int64_t bytes, TorchDevice device) noexcept {
  if (device.type != kTorchCuda || t_state.in_shim || policy::enabled()) return;
  if (g_source.load(std::memory_order_relaxed) == Source::adaptor) return;
  const ErrnoKeeper keep;
  Event event;
  event.kind = EventKind::oom;
  event.device = device.index;
  event.requested = static_cast<uint64_t>(bytes);
  event.flags = kFlagSourceReport;
  write_block(event);
}

}  // namespace fragscope::shim
