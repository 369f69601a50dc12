#include "shim/caps.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>

#include "base/bytes.h"
#include "enforce/account.h"
#include "enforce/allocation_book.h"
#include "shim/cuda_abi.h"
#include "shim/elf_lookup.h"
#include "shim/export.h"
#include "shim/marks.h"
#include "shim/real_api.h"
#include "shim/recorder.h"

namespace fragscope::shim::caps {
namespace {

using enforce::Holding;
using enforce::kMaxDevices;
using enforce::kPinnedPurse;

// totalGlobalMem in cudaDeviceProp: name, uuid, luid and its mask lie before it in every release.
constexpr size_t kTotalGlobalMemAt = 288;

struct Settings {
  enforce::Limits limits;
  std::string problem;  // why nothing is enforced
};
constinit std::atomic<const Settings*> g_settings{nullptr};

const char* variable(const char* name) { return secure_getenv(name); }

// Read once, by whoever comes first; never freed.
const Settings& settings() {
  const Settings* current = g_settings.load(std::memory_order_acquire);
  if (current != nullptr) return *current;
  auto fresh = std::make_unique<Settings>();
  Result<enforce::Limits> limits = enforce::read_limits(variable);
  if (limits) {
    fresh->limits = std::move(*limits);
  } else {
    fresh->problem = limits.error().text;
  }
  if (g_settings.compare_exchange_strong(current, fresh.get())) return *fresh.release();
  return *current;
}

// Everything of one process; a forked child starts anew and leaves its parent's state alone.
struct State {
  pid_t owner = getpid();
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  std::atomic<uint64_t> device_calls{0};
  std::atomic<uint64_t> warned{0};  // bit n: of device n
  std::unique_ptr<enforce::Account> account;
  std::unique_ptr<enforce::AllocationBook> book;
  std::set<uint64_t> own_contexts;         // that the program made itself
  std::map<int32_t, uint64_t> primaries;   // primary contexts by device, as far as seen
  std::map<int32_t, uint64_t> card_bytes;  // of devices that were asked for
  std::string problem;                     // of the shared account
};
constinit std::atomic<State*> g_state{nullptr};

State& state() {
  State* current = g_state.load(std::memory_order_acquire);
  if (current != nullptr && current->owner == getpid()) return *current;
  auto fresh = std::make_unique<State>();
  if (g_state.compare_exchange_strong(current, fresh.get())) return *fresh.release();
  return *current;
}

class Locked {
 public:
  explicit Locked(State& state) : state_(state) {
    pthread_mutex_lock(&state_.lock);
    if (state_.account == nullptr) open_account();
  }
  ~Locked() { pthread_mutex_unlock(&state_.lock); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  void open_account() {
    const enforce::Limits& asked = settings().limits;
    if (asked.scope == enforce::LimitScope::run) {
      auto shared = enforce::SharedAccount::open(asked.account);
      if (shared) {
        state_.account = std::move(*shared);
      } else {
        state_.problem = shared.error().text + "; each process is held to them by itself";
      }
    }
    if (state_.account == nullptr) state_.account = std::make_unique<enforce::LocalAccount>();
    state_.book = std::make_unique<enforce::AllocationBook>(*state_.account);
  }

  State& state_;
};

uint64_t card_bytes_of(State& all, int32_t device) {
  if (const auto known = all.card_bytes.find(device); known != all.card_bytes.end()) {
    return known->second;
  }
  const auto total_mem =
      reinterpret_cast<int (*)(size_t*, int)>(driver_function("cuDeviceTotalMem_v2"));
  size_t bytes = 0;
  if (total_mem == nullptr || total_mem(&bytes, device) != kSuccess) return 0;
  all.card_bytes[device] = bytes;
  return bytes;
}

// Processes of a run may number the same cards differently.
void name_device(State& all, int32_t device) {
  if (settings().limits.scope != enforce::LimitScope::run) return;
  const auto get_uuid =
      reinterpret_cast<int (*)(void*, int)>(driver_function("cuDeviceGetUuid_v2"));
  enforce::DeviceUuid uuid{};
  if (get_uuid == nullptr || get_uuid(uuid.data(), device) != kSuccess) {
    uuid = {'o', 'r', 'd', 'i', 'n', 'a', 'l', static_cast<unsigned char>(device)};
  }
  all.account->name_device(device, uuid);
}

// The device that a call of `real` will allocate on. The runtime's answer counts before the
// driver's: until CUDA 12 a device that was set has no context before its first call.
int32_t device_of_call(HookId id, const void* real, const Event& event) {
  if (event.kind == EventKind::phys_create) return event.device;
  int device = kUnknownDevice;
  if (info(id).library == Library::runtime) {
    const auto get_device =
        reinterpret_cast<int (*)(int*)>(find_symbol(object_of(real), "cudaGetDevice"));
    if (get_device == nullptr || get_device(&device) != kSuccess) device = kUnknownDevice;
  }
  return device != kUnknownDevice ? device : current_device();
}

bool is_pinned(EventKind kind) {
  return kind == EventKind::pinned_alloc || kind == EventKind::pinned_register;
}

bool is_counted(const Event& event) {
  if (event.requested == 0 || event.requested == kUnknown) return false;
  switch (event.kind) {
    case EventKind::device_alloc:
    case EventKind::pinned_alloc:
    case EventKind::pinned_register:
      return true;
    case EventKind::async_alloc:  // a node of a graph while the stream captures
      return capturing_graph(reinterpret_cast<Stream>(event.stream)) == nullptr;
    case EventKind::array_alloc:
      return (event.aux2 & (kArraySparse | kArrayDeferredMapping)) == 0 || event.aux2 == kUnknown;
    case EventKind::phys_create:
      return event.aux == static_cast<uint64_t>(kLocationTypeDevice);
    default:
      return false;
  }
}

bool fails_on_purpose(State& all) {
  const enforce::Limits& asked = settings().limits;
  const uint64_t number = all.device_calls.fetch_add(1, std::memory_order_relaxed) + 1;
  return (asked.oom_at && asked.oom_at->contains(number)) ||
         (asked.fail_rate && asked.fail_rate->contains(number));
}

Ticket take(State& all, int32_t purse, uint64_t bytes, const std::optional<uint64_t>& limit) {
  if (limit) {
    if (!all.account->take(purse, bytes, *limit))
      return {Ticket::Verdict::refused, purse, 0, purse != kPinnedPurse};
  } else {
    all.account->add(purse, bytes);
  }
  return {Ticket::Verdict::admitted, purse, bytes, false};
}

Ticket take_device(State& all, int32_t device, uint64_t bytes) {
  const Locked lock(all);
  name_device(all, device);
  return take(all, device, bytes, settings().limits.device_bytes);
}

uint64_t context_of(State& all, const Event& event, int32_t device) {
  if (event.kind == EventKind::async_alloc) return enforce::kNoContext;
  const auto context = reinterpret_cast<uint64_t>(current_context());
  if (context != 0 && device >= 0 && all.own_contexts.count(context) == 0) {
    all.primaries[device] = context;
  }
  return context;
}

// Once per device: what the program holds has crossed the threshold.
void warn(State& all, int32_t device, uint64_t used, uint64_t visible) {
  const uint64_t bit = uint64_t{1} << device;
  if ((all.warned.fetch_or(bit, std::memory_order_relaxed) & bit) != 0) return;
  Session* const session = get_or_create_session();
  if (session == nullptr) return;
  char text[160];
  std::snprintf(text, sizeof text, "fragscope: device %d: %s of %s are in use (--warn-at)", device,
                format_size(used).c_str(), format_size(visible).c_str());
  log_requested_mark(*session, text);
  log::LogHeader& header = *session->writer.header();
  header.warn_device.store(device, std::memory_order_relaxed);
  header.warn_used.store(used, std::memory_order_relaxed);
  header.warn_of.store(visible, std::memory_order_relaxed);
  header.warnings.fetch_add(1, std::memory_order_release);
}

uint64_t visible(uint64_t card_bytes) {
  const auto& limit = settings().limits.device_bytes;
  return limit && *limit < card_bytes ? *limit : card_bytes;
}

struct Crossing {
  int32_t device = kUnknownDevice;  // kUnknownDevice: none
  uint64_t used = 0;
  uint64_t visible = 0;
};

Crossing crossing_of(State& all, int32_t purse) {
  const auto& threshold = settings().limits.warn_at;
  if (!threshold || purse >= kMaxDevices) return {};
  const uint64_t of = visible(card_bytes_of(all, purse));
  const uint64_t used = all.account->used(purse);
  if (of == 0 || used < threshold->of(of)) return {};
  return {purse, used, of};
}

Crossing settle_locked(State& all, const Ticket& ticket, const Event& event) {
  if (event.result != kSuccess) {
    if (!ticket.refused()) all.account->give_back(ticket.purse, ticket.bytes);
    return {};
  }
  const bool array = event.kind == EventKind::array_alloc;
  const uint64_t bytes = array || event.size == kUnknown ? event.requested : event.size;
  if (bytes > ticket.bytes) all.account->add(ticket.purse, bytes - ticket.bytes);
  if (bytes < ticket.bytes) all.account->give_back(ticket.purse, ticket.bytes - bytes);
  if (event.kind == EventKind::phys_create) {
    all.book->begin_physical(event.address, ticket.purse, bytes);
  } else {
    const int32_t device = is_pinned(event.kind) ? kUnknownDevice : ticket.purse;
    all.book->begin(event.address, {ticket.purse, bytes, context_of(all, event, device)});
  }
  return crossing_of(all, ticket.purse);
}

bool is_own_context(const void* self, uint64_t context) {
  return static_cast<const State*>(self)->own_contexts.count(context) != 0;
}

void end_contexts(State& all, EventKind kind, uint64_t context, int32_t device) {
  if (kind != EventKind::context_destroy) return;
  if (context != kUnknown) {
    all.book->end_context(context);
    all.own_contexts.erase(context);
    return;
  }
  if (device < 0 || device >= kMaxDevices) return;
  const auto primary = all.primaries.find(device);
  if (primary != all.primaries.end()) all.book->end_context(primary->second);  // pinned memory too
  all.book->end_device(device, is_own_context, &all);
}

void write_number(Session& session, const char* key, const std::optional<uint64_t>& value) {
  if (value) session.write_property(key, *value);
}

void write_text(Session& session, const char* key, const char* name) {
  const char* const value = variable(name);
  if (value != nullptr && *value != '\0') session.write_property(key, value);
}

}  // namespace

bool active() noexcept try {
  const Settings* const known = g_settings.load(std::memory_order_acquire);
  if (known != nullptr) return known->limits.any();
  const ErrnoKeeper keep;
  return settings().limits.any();
} catch (...) {
  return false;
}

const enforce::Limits* limits() noexcept try {
  const ErrnoKeeper keep;
  return &settings().limits;
} catch (...) {
  return nullptr;
}

Ticket admit(HookId id, const void* real, const Event& event) noexcept try {
  const ErrnoKeeper keep;
  if (!is_counted(event)) return {};
  State& all = state();
  const enforce::Limits& asked = settings().limits;
  if (is_pinned(event.kind)) {
    if (!asked.pinned_bytes) return {};
    const Locked lock(all);
    return take(all, kPinnedPurse, event.requested, asked.pinned_bytes);
  }
  const int32_t device = device_of_call(id, real, event);
  if (device < 0 || device >= kMaxDevices) return {};
  if (fails_on_purpose(all)) return {Ticket::Verdict::refused, device, 0, false};
  if (!asked.device_bytes && !asked.warn_at) return {};
  return take_device(all, device, event.requested);
} catch (...) {  // no memory for the books
  return {};
}

Ticket admit_again(HookId id, const void* real, const Event& event) noexcept try {
  const ErrnoKeeper keep;
  return take_device(state(), device_of_call(id, real, event), event.requested);
} catch (...) {
  return {};
}

void settle(const Ticket& ticket, const Event& event) noexcept try {
  if (ticket.verdict == Ticket::Verdict::uncounted) return;
  const ErrnoKeeper keep;
  State& all = state();
  Crossing crossing;
  {
    const Locked lock(all);
    crossing = settle_locked(all, ticket, event);
  }
  if (crossing.device >= 0) warn(all, crossing.device, crossing.used, crossing.visible);
} catch (...) {
  return;
}

FreeTicket begin_free(const Event& event) noexcept try {
  const ErrnoKeeper keep;
  FreeTicket ticket;
  ticket.kind = event.kind;
  ticket.address = event.address;
  ticket.bytes = event.size;
  ticket.purse = event.device;
  switch (event.kind) {
    case EventKind::device_free:
    case EventKind::async_free:
    case EventKind::array_free:
    case EventKind::pinned_free:
    case EventKind::pinned_unregister: {
      State& all = state();
      const Locked lock(all);
      const std::optional<Holding> holding = all.book->take_out(event.address);
      if (!holding) return {};
      return {event.kind, true, holding->purse, event.address, holding->bytes, holding->context};
    }
    case EventKind::phys_release: {
      State& all = state();
      const Locked lock(all);
      ticket.context = all.book->physical_of(event.address);
      ticket.found = ticket.context != 0;
      return ticket;
    }
    case EventKind::context_destroy:
      if (ticket.purse == kUnknownDevice) ticket.purse = current_device();
      ticket.found = true;
      return ticket;
    case EventKind::va_unmap:
      ticket.found = true;
      return ticket;
    default:
      return {};
  }
} catch (...) {
  return {};
}

void end_free(const FreeTicket& ticket, int result) noexcept try {
  if (!ticket.found) return;
  const ErrnoKeeper keep;
  State& all = state();
  const Locked lock(all);
  const bool done = result == kSuccess;
  switch (ticket.kind) {
    case EventKind::phys_release:
      if (done) all.book->release(ticket.context);
      return;
    case EventKind::va_unmap:
      if (done) all.book->unmap(ticket.address, ticket.bytes);
      return;
    case EventKind::context_destroy:
      if (done) end_contexts(all, ticket.kind, ticket.address, ticket.purse);
      return;
    default: {
      const Holding holding{ticket.purse, ticket.bytes, ticket.context};
      if (done) {
        all.book->end_taken(holding);
      } else {
        all.book->put_back(ticket.address, holding);
      }
    }
  }
} catch (...) {
  return;
}

void note(const Event& event) noexcept try {
  if (event.result != kSuccess) return;
  const ErrnoKeeper keep;
  State& all = state();
  const Locked lock(all);
  switch (event.kind) {
    case EventKind::va_map:
      all.book->map(event.address, event.size, event.aux);
      return;
    case EventKind::phys_retain:
      all.book->retain(event.address, event.aux);
      return;
    case EventKind::phys_import:
      all.book->begin_imported(event.address);
      return;
    case EventKind::context_create:
      all.own_contexts.insert(event.address);
      return;
    case EventKind::context_destroy:
      end_contexts(all, event.kind, event.address, event.device);
      return;
    default:
      return;
  }
} catch (...) {
  return;
}

uint64_t visible_bytes(uint64_t card_bytes) noexcept try {
  return visible(card_bytes);
} catch (...) {
  return card_bytes;
}

void adjust(size_t* free_bytes, size_t* total_bytes) noexcept try {
  const ErrnoKeeper keep;
  const auto& limit = settings().limits.device_bytes;
  const int32_t device = current_device();
  if (!limit || device < 0 || device >= kMaxDevices) return;
  if (total_bytes != nullptr) *total_bytes = visible(*total_bytes);
  if (free_bytes == nullptr) return;
  State& all = state();
  const Locked lock(all);
  name_device(all, device);
  const uint64_t used = all.account->used(device);
  const uint64_t left = used < *limit ? *limit - used : 0;
  if (left < *free_bytes) *free_bytes = left;
} catch (...) {
  return;
}

void adjust(size_t* total_bytes, int) noexcept {
  if (total_bytes != nullptr) *total_bytes = visible_bytes(*total_bytes);
}

void adjust(void* properties, int device) noexcept {
  if (properties == nullptr) return;
  auto* const total = static_cast<char*>(properties) + kTotalGlobalMemAt;
  adjust(reinterpret_cast<size_t*>(total), device);
}

void describe(Session& session) noexcept try {
  const Settings& all = settings();
  if (!all.problem.empty()) {
    session.write_property("limit.problem", all.problem);
    return;
  }
  write_number(session, "limit.memory_bytes", all.limits.device_bytes);
  write_number(session, "limit.pinned_bytes", all.limits.pinned_bytes);
  if (all.limits.device_bytes || all.limits.pinned_bytes) {
    session.write_property("limit.scope",
                           all.limits.scope == enforce::LimitScope::run ? "run" : "process");
    State& books = state();
    const Locked lock(books);
    if (!books.problem.empty()) session.write_property("limit.problem", books.problem);
  }
  write_text(session, "limit.oom_at", "FRAGSCOPE_OOM_AT");
  write_text(session, "limit.fail_rate", "FRAGSCOPE_FAIL_RATE");
  write_text(session, "limit.warn_at", "FRAGSCOPE_WARN_AT");
  write_text(session, "limit.on_oom", "FRAGSCOPE_ON_OOM");
} catch (...) {
  return;
}

}  // namespace fragscope::shim::caps
