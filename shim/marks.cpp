#include "shim/marks.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

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

// Also while recording is paused.
void write_requested(Session& session, std::string_view text, uint32_t flags, uint64_t aux) {
  Event event;
  event.kind = EventKind::mark;
  event.flags = flags;
  event.aux = aux;
  event.text = text_id(session, text.substr(0, kMaxText));
  event.tid = thread_id();
  event.time_ns = monotonic_ns();
  session.writer.write(event);
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
  write_requested(session, text, kFlagSourceApi, kUnknown);
}

void log_changed_settings(Session& session, std::string_view settings, uint32_t number) noexcept {
  // A property takes some 500 bytes: half a setting would be another one.
  constexpr size_t kMostBytes = 400;
  char key[40];
  std::snprintf(key, sizeof key, "alloc_conf.change.%u", number);
  session.write_property(key, settings.size() <= kMostBytes ? settings : "(too long)");
  constexpr std::string_view kBegin = "fragscope: settings changed: ";
  char text[kMaxText];
  const size_t length = std::min(settings.size(), sizeof text - kBegin.size());
  std::memcpy(text, kBegin.data(), kBegin.size());
  std::memcpy(text + kBegin.size(), settings.data(), length);
  write_requested(session, {text, kBegin.size() + length}, kFlagSourceApi | kFlagSettings, number);
}

}  // namespace fragscope::shim
