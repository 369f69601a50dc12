#include "diagnose/oom_message.h"

#include <algorithm>
#include <array>

#include "diagnose/message_collector.h"
#include "diagnose/phrases.h"
#include "diagnose/squeezed_text.h"

namespace fragscope::diagnose {
namespace {

constexpr size_t kPiece = 64 * 1024;  // raw bytes per step
constexpr size_t kLookAhead = 512;    // a phrase with its figures, so that none is cut by a step
constexpr size_t kLookBack = 512;

}  // namespace

std::string_view family_name(Family family) {
  constexpr std::string_view kNames[] = {
#define FAMILY(id, source) source,
#include "diagnose/families.def"
#undef FAMILY
  };
  return kNames[static_cast<size_t>(family)];
}

std::string_view field_name(Field field) {
  constexpr std::array<std::string_view, kFieldCount> kNames = {
      "tried_bytes",    "total_bytes",         "allocated_bytes",      "free_bytes",
      "reserved_bytes", "cached_bytes",        "unallocated_bytes",    "allowed_bytes",
      "limit_bytes",    "private_pools_bytes", "process_in_use_bytes", "device_in_use_bytes"};
  return kNames[static_cast<size_t>(field)];
}

bool OomFacts::has_figures() const {
  return std::any_of(figures.begin(), figures.end(), [](const auto& f) { return f.has_value(); });
}

Wording wording_of(const OomFacts& f) {
  if (f.family == Family::kTooLarge) return {"I", ""};
  if (f.family == Family::kRejected) return {"J", ">= 2.12"};
  if (f.family == Family::kAsync) return {"L", ">= 2.0"};
  if (f.family != Family::kNative) return {};
  if (f.has(Mark::kExpandableOn) || f.has(Mark::kBeyondReserve)) return {"M", ">= 2.15"};
  if (f.has(Mark::kCapacty)) return {"E", "2.1"};
  if (f.has(Mark::kCurrentLayout)) {
    if (f.has(Mark::kDocsUrl)) return {"H''", ">= 2.11"};
    if (f.has(Mark::kGenericConf)) return {"H'", "2.10"};
    if (f[Field::kAllowed]) return {"H", ">= 2.5"};
    if (f[Field::kPrivatePools]) return {"G", ">= 2.4"};
    if (f.has(Mark::kExpandableAdvice)) return {"F", "2.2 - 2.9"};
    return {"", ">= 2.1"};
  }
  if (f[Field::kCached]) return {"A", "<= 1.3"};
  if (f.has(Mark::kMaxSplitAdvice)) return {"D", "1.10 - 2.0"};
  if (f[Field::kAllowed]) return {"C", "1.8 - 2.0"};
  if (f[Field::kReserved]) return {"B", "1.4 - 2.0"};
  if (f.has(Mark::kLegacyLayout)) return {"", "<= 2.0"};
  return {};
}

struct MessageScanner::Squeezed {
  TextSqueezer squeezer;
  std::string text;
  size_t scanned = 0;  // of `text`
  uint64_t base = 0;   // position of text[0] in the whole squeezed input
};

MessageScanner::MessageScanner()
    : text_(std::make_unique<Squeezed>()), collector_(std::make_unique<MessageCollector>()) {}
MessageScanner::~MessageScanner() = default;

void MessageScanner::feed(std::string_view raw) {
  while (!raw.empty()) {
    const std::string_view piece = raw.substr(0, kPiece);
    text_->squeezer.feed(piece, text_->text);
    raw.remove_prefix(piece.size());
    scan(false);
  }
}

void MessageScanner::scan(bool to_the_end) {
  const size_t size = text_->text.size();
  const size_t ahead = to_the_end ? 0 : kLookAhead;
  if (size < text_->scanned + ahead + 1) return;
  const size_t end = size - ahead;
  find_phrases(text_->text, text_->scanned, end, [this](const Phrase& phrase, size_t at) {
    collector_->found(phrase, text_->text, at, text_->base);
  });
  text_->scanned = end;
  if (end > kPiece) {
    const size_t dropped = end - kLookBack;
    text_->text.erase(0, dropped);
    text_->base += dropped;
    text_->scanned -= dropped;
  }
}

void MessageScanner::add_context(std::string_view raw) {
  text_->squeezer.finish(text_->text);
  scan(true);
  collector_->end_of_text(text_->text, text_->base);
  collector_->start_context();
  feed(raw);
}

MessageScan MessageScanner::finish() {
  text_->squeezer.finish(text_->text);
  scan(true);
  collector_->end_of_text(text_->text, text_->base);
  return collector_->finish();
}

MessageScan scan_message(std::string_view raw, std::string_view context) {
  MessageScanner scanner;
  scanner.feed(raw);
  if (!context.empty()) scanner.add_context(context);
  return scanner.finish();
}

}  // namespace fragscope::diagnose
