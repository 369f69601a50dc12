#include "shim/live_settings.h"

#include <algorithm>
#include <cstring>

#include "shim/marks.h"

namespace fragscope::shim {

void note_enforcement(Session& session, log::Enforcement who) noexcept {
  session.writer.header()->enforcement.store(static_cast<uint32_t>(who), std::memory_order_release);
}

uint32_t take_settings(Session& session, char* text, size_t bytes) noexcept {
  log::LogHeader& header = *session.writer.header();
  const uint32_t wanted = header.settings_wanted.load(std::memory_order_acquire);
  uint32_t claimed = header.settings_claimed.load(std::memory_order_relaxed);
  if (claimed == wanted || bytes == 0) return 0;
  if (!header.settings_claimed.compare_exchange_strong(claimed, wanted)) return 0;
  const size_t length = std::min(strnlen(header.settings_text, log::kMaxRequestBytes), bytes - 1);
  std::memcpy(text, header.settings_text, length);
  text[length] = '\0';
  return wanted;
}

void answer_settings(Session& session, uint32_t number, bool accepted,
                     const char* problem) noexcept {
  log::LogHeader& header = *session.writer.header();
  // Still the text of this request: the next one waits for the answer.
  if (accepted) {
    const size_t bytes = strnlen(header.settings_text, log::kMaxRequestBytes);
    log_changed_settings(session, {header.settings_text, bytes}, number);
  }
  const size_t length =
      problem != nullptr ? std::min(std::strlen(problem), log::kMaxRequestBytes) : 0;
  if (length != 0) std::memcpy(header.settings_answer, problem, length);
  header.settings_answer[length] = '\0';
  header.settings_accepted.store(accepted ? 1 : 0, std::memory_order_relaxed);
  header.settings_done.store(number, std::memory_order_release);
}

}  // namespace fragscope::shim
