// The recorder's side of fragscope_api.h.

#include <atomic>
#include <cstring>

#include "shim/export.h"
#include "shim/fragscope_api.h"
#include "shim/live_settings.h"
#include "shim/marks.h"
#include "shim/on_oom.h"
#include "shim/policy.h"
#include "shim/recorder.h"

namespace fragscope::shim {
namespace {

static_assert(FRAGSCOPE_UNKNOWN == kUnknown);

constinit std::atomic<uint64_t> g_told_session{0};

// Block events of this session come from the API: said once.
Session* block_session() {
  if (t_state.in_shim) return nullptr;
  Session* const session = session_for(EventKind::alloc);
  if (session != nullptr && g_told_session.load(std::memory_order_relaxed) != session->id &&
      g_told_session.exchange(session->id, std::memory_order_relaxed) != session->id) {
    session->write_property("block_source", "api");
    note_allocator_above();
  }
  return session;
}

void write_block(EventKind kind, int32_t device, uint64_t stream, uint64_t address,
                 uint64_t size = kUnknown, uint64_t requested = kUnknown, uint64_t aux = kUnknown,
                 uint64_t aux2 = kUnknown) {
  const ErrnoKeeper keep;
  Session* const session = block_session();
  if (session == nullptr) return;
  Event event;
  event.kind = kind;
  event.device = device;
  event.stream = stream;
  event.address = address;
  event.size = size;
  event.requested = requested;
  event.aux = aux;
  event.aux2 = aux2;
  event.flags = kFlagSourceApi;
  submit(*session, event);
}

int active() noexcept {
  const ErrnoKeeper keep;
  return recording_wanted() ? 1 : 0;
}

void block_alloc(int32_t device, uint64_t stream, uint64_t address, uint64_t size,
                 uint64_t requested, uint64_t allocated, uint64_t reserved) noexcept {
  write_block(EventKind::alloc, device, stream, address, size, requested, allocated, reserved);
}

void block_free_requested(int32_t device, uint64_t stream, uint64_t address) noexcept {
  write_block(EventKind::free_requested, device, stream, address);
}

void block_free_completed(int32_t device, uint64_t stream, uint64_t address) noexcept {
  write_block(EventKind::free_completed, device, stream, address);
}

void segment_alloc(int32_t device, uint64_t stream, uint64_t address, uint64_t size) noexcept {
  write_block(EventKind::segment_alloc, device, stream, address, size, size);
}

void segment_free(int32_t device, uint64_t stream, uint64_t address, uint64_t size) noexcept {
  write_block(EventKind::segment_free, device, stream, address, size, size);
}

void segment_map(int32_t device, uint64_t stream, uint64_t address, uint64_t size) noexcept {
  write_block(EventKind::segment_map, device, stream, address, size, size);
}

void segment_unmap(int32_t device, uint64_t stream, uint64_t address, uint64_t size) noexcept {
  write_block(EventKind::segment_unmap, device, stream, address, size, size);
}

void oom(int32_t device, uint64_t stream, uint64_t requested, uint64_t device_free) noexcept {
  write_block(EventKind::oom, device, stream, kUnknown, kUnknown, requested, device_free);
}

void mark(const char* text) noexcept {
  if (text != nullptr) log_mark(EventKind::mark, text);
}

void range_push(const char* text) noexcept {
  log_mark(EventKind::range_push, text != nullptr ? text : "");
}

void range_pop() noexcept { log_mark(EventKind::range_pop, {}); }

void property(const char* key, const char* value) noexcept {
  if (key == nullptr || value == nullptr || t_state.in_shim) return;
  const ErrnoKeeper keep;
  const bool enforces = std::strcmp(key, "enforce") == 0;
  const bool pluggable = std::strcmp(value, "pluggable") == 0;
  if (enforces) policy::leave_to_program(pluggable);
  if (enforces && std::strcmp(value, "native") == 0) return;  // the session says it
  Session* const session = get_or_create_session();
  if (session == nullptr) return;
  session->write_property(key, value);
  if (enforces && pluggable) note_enforcement(*session, log::Enforcement::pluggable);
}

uint32_t take_wanted(char* text, size_t bytes) noexcept {
  Session* const session = current_session();
  return session != nullptr && text != nullptr ? take_settings(*session, text, bytes) : 0;
}

void answer_wanted(uint32_t number, int accepted, const char* problem) noexcept {
  Session* const session = current_session();
  if (session != nullptr) answer_settings(*session, number, accepted != 0, problem);
}

constexpr fragscope_api kTable = {sizeof(fragscope_api),
                                  FRAGSCOPE_API_VERSION,
                                  active,
                                  block_alloc,
                                  block_free_requested,
                                  block_free_completed,
                                  segment_alloc,
                                  segment_free,
                                  oom,
                                  mark,
                                  range_push,
                                  range_pop,
                                  property,
                                  take_wanted,
                                  answer_wanted,
                                  segment_map,
                                  segment_unmap};

}  // namespace
}  // namespace fragscope::shim

// `version`: of the header that asks. Version 1 is the only one so far.
extern "C" FRAGSCOPE_EXPORT const fragscope_api* fragscope_get_api(uint32_t version);
const fragscope_api* fragscope_get_api(uint32_t version) {
  return version >= 1 ? &fragscope::shim::kTable : nullptr;
}
