#include "shim/marks.h"

#include "shim/export.h"
#include "shim/process_facts.h"
#include "shim/recorder.h"

namespace fragscope::shim {
namespace {

constexpr size_t kMaxText = 1000;

uint64_t hash_of(std::string_view text) {
  uint64_t hash = text.size();
  for (const char c : text) hash = mix_hash(hash, static_cast<unsigned char>(c));
  return hash | 1;
}

uint32_t text_id(Session& session, std::string_view text) {
  InternMap::Entry* const entry = session.texts.entry(hash_of(text));
  const uint32_t known = entry != nullptr ? entry->id.load(std::memory_order_acquire) : 0;
  if (known != 0) return known;
  const uint32_t id = session.next_text.fetch_add(1, std::memory_order_relaxed) + 1;
  if (!session.writer.write_blob(log::BlobKind::text, id, text)) return 0;
  if (entry != nullptr) entry->id.store(id, std::memory_order_release);
  return id;
}

}  // namespace

void log_mark(EventKind kind, std::string_view text, uint64_t range) noexcept {
  const ErrnoKeeper keep;
  Session* const session = current_session();
  if (session == nullptr || t_state.in_shim) return;
  Event event;
  event.kind = kind;
  event.flags = kFlagSourceApi;
  event.aux = range;
  if (kind != EventKind::range_pop && kind != EventKind::range_end) {
    event.text = text_id(*session, text.substr(0, kMaxText));
  }
  submit(*session, event);
}

void log_requested_mark(Session& session, std::string_view text) noexcept {
  Event event;
  event.kind = EventKind::mark;
  event.flags = kFlagSourceApi;
  event.text = text_id(session, text.substr(0, kMaxText));
  event.tid = thread_id();
  event.time_ns = monotonic_ns();
  session.writer.write(event);
}

}  // namespace fragscope::shim
