#include "diagnose/message_collector.h"

#include <algorithm>

#include "base/bytes.h"

namespace fragscope::diagnose {
namespace {

// Squeezed characters between two parts of one message, and between a message and the text that
// tells its circumstances.
constexpr uint64_t kMessageReach = 1500;
constexpr uint64_t kEchoReach = 400;
constexpr uint64_t kHintReach = 4000;
constexpr uint64_t kDeviceReach = 64;
constexpr size_t kMaxProcesses = 1024;
// Retold figures ("12.00 GiB total, …") count only next to the request.
constexpr uint64_t kRetoldReach = 250;

bool is_native(Family family) {
  return family == Family::kNative || family == Family::kBareAllocator ||
         family == Family::kRejected || family == Family::kTooLarge;
}
bool is_bfc(Family family) { return family == Family::kXla || family == Family::kTensorflow; }

// May a figure of `phrase` belong to a message of `message`?
bool compatible(Family message, Family phrase) {
  return message == phrase || (is_native(message) && is_native(phrase)) ||
         (is_bfc(message) && is_bfc(phrase)) ||
         (message == Family::kBareCuda && phrase != Family::kNative);
}

// "Tried to allocate" is ordinary English; PyTorch's stands behind "out of memory." or in front of
// the device.
bool is_allocator_sentence(std::string_view text, size_t at, size_t behind) {
  if (at == 0 || ends_at(text, at, "memory.") || ends_at(text, at, "memory")) return true;
  const auto tried = quantity_after(text, behind, Unit::kRequired);
  if (!tried) return false;
  const size_t end = tried->end;
  return starts_at(text, end, "(gpu") || starts_at(text, end, ".gpu") ||
         starts_at(text, end, "(xpu") || starts_at(text, end, ".xpu");
}

// What stands in front of a figure of PyTorch's text. Without it the text is cut, and the head of
// the number may be missing: no figure is better than a wrong one.
bool has_lead(const Phrase& phrase, std::string_view text, size_t begin) {
  if (phrase.at != At::kBefore && phrase.at != At::kBeforeListed) return true;
  if (phrase.family != Family::kNative) return true;
  if (phrase.opens == Opens::kYes && static_cast<Field>(phrase.field) == Field::kTried) return true;
  // ".25" and ",25" at the very start are the tail of a number.
  if (begin < 2) return false;
  if (std::string_view(";,(").find(text[begin - 1]) != std::string_view::npos) return true;
  if (phrase.at == At::kBeforeListed) return false;
  for (const std::string_view lead : {"which", "memory", "and", "with", "."}) {
    if (ends_at(text, begin, lead)) return true;
  }
  return false;
}

bool negated(std::string_view text, size_t at, size_t behind) {
  size_t next = behind;
  while (next < text.size() && std::string_view(":=\"'(,").find(text[next]) != text.npos) ++next;
  for (const std::string_view no : {"false", "off", "none", "disabled"}) {
    if (next > behind && starts_at(text, next, no)) return true;
  }
  for (const std::string_view no : {"isno", "notan", "nota", "without", "noteven"}) {
    if (ends_at(text, at, no)) return true;
  }
  return ends_at(text, at, ",no") || ends_at(text, at, ".no") || ends_at(text, at, ";no");
}

}  // namespace

void MessageCollector::found(const Phrase& phrase, std::string_view text, size_t at,
                             uint64_t base) {
  const Place place{text, at, at + phrase.text.size(), base + at};
  if (phrase.special != Special::kNone && phrase.special != Special::kNegatable) {
    read_special(phrase, place);
  }
  if (phrase.hint != kNothing) read_hint(static_cast<Hint>(phrase.hint), place);
  if (context_) return;
  if (phrase.family != Family::kNone) open(phrase, place);
  if (phrase.mark != kNothing && current_ && place.position - current_->end <= kMessageReach) {
    current_->marks.set(phrase.mark);
    current_->end = std::max(current_->end, place.position);
  }
}

bool MessageCollector::belongs_to_current(const Phrase& phrase, const Place& place) const {
  if (!current_) return false;
  const uint64_t gap = place.position - std::min(place.position, current_->end);
  const bool figure = phrase.field != kNothing;
  if (figure && compatible(current_->family, phrase.family)) return gap <= kMessageReach;
  return gap <= kEchoReach;
}

// Is `phrase` a part, an echo or a refinement of the open message?
bool MessageCollector::continues_current(const Phrase& phrase, const Place& place) const {
  if (!belongs_to_current(phrase, place)) return false;
  const Family family = current_->family;
  if (phrase.opens == Opens::kNo) {
    return phrase.field == kNothing || compatible(family, phrase.family);
  }
  if (phrase.opens == Opens::kAlways) {
    if (family >= Family::kNative || family == Family::kHostRam) return false;
    return phrase.family == Family::kNative ? !(*current_)[Field::kTried] : family != phrase.family;
  }
  // The words that began the message, once more behind its figures: the next one.
  // PyTorch's begins with its request.
  const bool again = phrase.text == opened_by_ && current_->has_figures();
  if (again && !is_native(current_->family)) return false;
  // Trouble on the host is news, however close it stands to a device's figures.
  const bool host = phrase.family >= Family::kHostRam && phrase.family <= Family::kHostPinned;
  return !(host && is_native(family) && current_->has_figures());
}

void MessageCollector::open(const Phrase& phrase, const Place& place) {
  const bool request = phrase.opens == Opens::kAlways && phrase.family == Family::kNative;
  const bool mps = current_ && current_->family == Family::kMps;
  if (request && !mps && !is_allocator_sentence(place.text, place.at, place.behind)) return;
  const auto value = figure_of(phrase, place);
  // A figure that cannot be read means that the phrase stands in some other sentence.
  if (phrase.field != kNothing && !value && !request) return;
  if (!continues_current(phrase, place)) {
    if (phrase.opens == Opens::kNo) return;
    start_message(phrase.family, place);
    opened_by_ = phrase.text;
  }
  // "Tried to allocate" within another backend's message is that backend's sentence.
  const Family before = current_->family;
  const bool foreign = before == Family::kNpu || (request && before == Family::kMps);
  if (!foreign && phrase.family > before) current_->family = phrase.family;
  if (value && before != Family::kNpu) store(static_cast<Field>(phrase.field), *value);
  current_->end = std::max(current_->end, place.position);
}

void MessageCollector::start_message(Family family, const Place& place) {
  close_message();
  ++messages_;
  current_.emplace();
  opened_by_ = {};
  current_->family = family;
  current_->begin = place.position;
  current_->end = place.position;
  if (pending_device_ && place.position - pending_device_at_ <= kDeviceReach) {
    current_->device_index = pending_device_;
  }
  for (size_t i = 0; i < hint_at_.size(); ++i) {
    if (hint_at_[i] && place.position - *hint_at_[i] <= kHintReach) current_->hints.set(i);
  }
}

void MessageCollector::close_message() {
  if (!current_) return;
  if (const auto& allocated = (*current_)[Field::kAllocated]) {
    const bool more = last_allocated_ && allocated->bytes > *last_allocated_;
    growing_ = more ? growing_ + 1 : 0;
    allocated_grew_ |= growing_ >= 2;
    last_allocated_ = allocated->bytes;
  }
  const bool echo = current_->family <= Family::kNccl && !current_->has_figures();
  if (!echo) last_telling_ = current_;
  last_ = std::move(current_);
  current_.reset();
}

std::optional<Quantity> MessageCollector::figure_of(const Phrase& phrase,
                                                    const Place& place) const {
  std::optional<FoundQuantity> value;
  switch (phrase.at) {
    case At::kNone:
      return std::nullopt;
    case At::kAfter:
      value = quantity_after(place.text, place.behind, Unit::kRequired);
      break;
    case At::kAfterBytes:
      value = quantity_after(place.text, place.behind, Unit::kOptional);
      break;
    case At::kLast:
      value = quantity_after(place.text, place.behind, Unit::kLast);
      break;
    case At::kBefore:
    case At::kBeforeListed:
      value = quantity_before(place.text, place.at);
      break;
  }
  if (!value) return std::nullopt;
  if (!has_lead(phrase, place.text, value->begin)) return std::nullopt;
  const bool retold =
      phrase.text.size() <= 10 && phrase.at == At::kBeforeListed &&
      (starts_at(phrase.text, 0, "total") || starts_at(phrase.text, 0, "allocated"));
  if (retold && (!current_ || place.position - current_->begin > kRetoldReach)) {
    return std::nullopt;
  }
  // "2.00GiB (2147483648 bytes)": the exact number wins.
  if (phrase.at == At::kAfter && starts_at(place.text, value->end, "(")) {
    const auto exact = quantity_after(place.text, value->end + 1, Unit::kRequired);
    const bool same =
        exact && exact->value.bytes >= value->value.low && exact->value.bytes <= value->value.high;
    if (same) value = exact;
  }
  return value->value;
}

void MessageCollector::store(Field field, const Quantity& value) {
  if (value.is_sentinel()) {
    current_->process_in_use_is_sentinel |= field == Field::kProcessInUse;
    // No memory is so large: the size of the request was computed from garbage.
    if (field == Field::kTried) current_->family = Family::kTooLarge;
    current_->limit_is_sentinel |= field == Field::kLimit;
    return;
  }
  auto& slot = current_->figures[static_cast<size_t>(field)];
  if (!slot) slot = value;
  // The async backend's limit is what a memory fraction allows.
  if (field == Field::kLimit && current_->family == Family::kAsync) store(Field::kAllowed, value);
}

void MessageCollector::read_special(const Phrase& phrase, const Place& place) {
  switch (phrase.special) {
    case Special::kMemoryFraction:
      if (const auto value = fraction_after(place.text, place.behind)) memory_fraction_ = value;
      return;
    case Special::kUtilization:
      if (const auto value = fraction_after(place.text, place.behind)) {
        gpu_memory_utilization_ = value;
      }
      return;
    case Special::kMemlock: {
      const size_t colon = starts_at(place.text, place.behind, ":") ? 1 : 0;
      if (const auto value = integer_after(place.text, place.behind + colon)) {
        memlock_kib_ = value;
        read_hint(Hint::kPinned, place);
      }
      return;
    }
    case Special::kShmSize: {
      const auto size = quantity_after(place.text, place.behind, Unit::kRequired);
      if (size && size->value.bytes >= kGiB) read_hint(Hint::kRoomyShm, place);
      return;
    }
    case Special::kWorkerCount: {
      const size_t equals = starts_at(place.text, place.behind, "=") ? 1 : 0;
      if (integer_after(place.text, place.behind + equals) == uint64_t{0}) {
        read_hint(Hint::kRoomyShm, place);
      }
      return;
    }
    default:
      if (!context_) read_message_special(phrase, place);
  }
}

void MessageCollector::read_message_special(const Phrase& phrase, const Place& place) {
  switch (phrase.special) {
    case Special::kDeviceAfter:
      read_device(integer_after(place.text, place.behind), place);
      return;
    case Special::kDeviceBefore: {
      size_t begin = place.at;
      const auto index = integer_before(place.text, place.at, &begin);
      const bool device = ends_at(place.text, begin, "gpu") || ends_at(place.text, begin, "xpu");
      read_device(device ? index : std::nullopt, place);
      return;
    }
    case Special::kProcess:
      read_process(place);
      return;
    case Special::kHamiFigures:
      read_hami(place);
      return;
    case Special::kVllmFree:
      read_vllm_free(place);
      return;
    case Special::kJuliaDevice:
      read_julia_device(place);
      return;
    case Special::kRmmSizes:
      read_rmm_sizes(place);
      return;
    case Special::kArenaFree:
      read_arena_free(place);
      return;
    case Special::kGgmlBuffer:
      read_ggml_buffer(place);
      return;
    case Special::kGenericOom:
      read_generic(place);
      return;
    case Special::kPinnedArgument: {
      const auto& named = hint_at_[static_cast<size_t>(Hint::kPinned)];
      if ((named && place.position - *named <= kMessageReach) || pinning_follows(place)) {
        open({.text = phrase.text, .opens = Opens::kYes, .family = Family::kHostPinned}, place);
      }
      return;
    }
    default:
      return;
  }
}

void MessageCollector::read_device(std::optional<uint64_t> index, const Place& place) {
  if (!index) return;
  pending_device_ = index;
  pending_device_at_ = place.position;
  if (!current_ || current_->device_index) return;
  if (place.position - current_->end <= kRetoldReach) current_->device_index = index;
}

void MessageCollector::read_process(const Place& place) {
  const auto value = quantity_before(place.text, place.at);
  if (!current_ || !is_native(current_->family) || !value) return;
  if (place.position - current_->end > kMessageReach) return;
  if (!ends_at(place.text, value->begin, "has")) return;
  current_->end = place.position;
  const size_t before = value->begin - 3;
  if (ends_at(place.text, before, "thisprocess")) {
    store(Field::kProcessInUse, value->value);
    return;
  }
  size_t begin = before;
  const auto pid = integer_before(place.text, before, &begin);
  if (!pid || !ends_at(place.text, begin, "process")) return;
  // 1 PiB: sums over all processes stay within int64_t.
  const bool plausible = value->value.bytes < (uint64_t{1} << 50);
  if (plausible && current_->listed_processes.size() < kMaxProcesses) {
    current_->listed_processes.push_back({*pid, value->value});
  }
}

void MessageCollector::read_hint(Hint hint, const Place& place) {
  if (negated(place.text, place.at, place.behind)) return;
  const auto index = static_cast<size_t>(hint);
  if (context_) {
    context_hints_.set(index);
    return;
  }
  hint_at_[index] = place.position;
  for (auto* message : {&current_, &last_, &last_telling_}) {
    if (*message && place.position - (*message)->end <= kHintReach) (*message)->hints.set(index);
  }
}

MessageScan MessageCollector::finish() {
  close_message();
  MessageScan scan;
  scan.messages = messages_;
  scan.allocated_grew = allocated_grew_;
  if (!last_) return scan;
  scan.message = last_telling_ ? last_telling_ : last_;
  scan.message->hints |= context_hints_;
  scan.message->memory_fraction = memory_fraction_;
  scan.message->gpu_memory_utilization = gpu_memory_utilization_;
  scan.message->memlock_kib = memlock_kib_;
  return scan;
}

}  // namespace fragscope::diagnose
