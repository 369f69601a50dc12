#include "simcuda/answers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "simcuda/text_rows.h"

namespace fragscope::simcuda {

namespace {

bool fits(std::string_view pattern, std::string_view name) {
  while (true) {
    const std::string_view part = pattern.substr(0, pattern.find('*'));
    const size_t at = name.find(part);
    if (at == std::string_view::npos) return false;
    if (part.size() == pattern.size()) return true;
    name.remove_prefix(at + part.size());
    pattern.remove_prefix(part.size() + 1);
  }
}

bool needs_argument(AnswerKind kind) {
  return kind == AnswerKind::kItems || kind == AnswerKind::kCount || kind == AnswerKind::kSpread;
}

constexpr size_t kRowValues = 2;  // a length, and what its rows are wide

bool set_answer(AnswerRule& rule, std::string_view text) {
  if (text == "zero") return true;
  if (text == "falling" || text == "halving") {
    rule.kind = text == "falling" ? AnswerKind::kFalling : AnswerKind::kHalving;
    return rule.bytes >= 2;
  }
  if (text == "rising" || text == "spread") {
    rule.kind = text == "rising" ? AnswerKind::kRising : AnswerKind::kSpread;
    return true;
  }
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || !read_number(text.substr(colon + 1), rule.number)) {
    return false;
  }
  const std::string_view kind = text.substr(0, colon);
  if (kind == "real") rule.kind = AnswerKind::kReal;
  if (kind == "items") rule.kind = AnswerKind::kItems;
  if (kind == "count") rule.kind = AnswerKind::kCount;
  if (kind == "real") return rule.bytes >= 4;
  return kind == "int" || (needs_argument(rule.kind) && rule.number >= 0);
}

// NUMBER, or NUMBER+OFFSET.
bool set_argument(AnswerRule& rule, std::string_view text) {
  constexpr int kMostArguments = 64;
  constexpr size_t kLargestArgument = 4096;  // what a launch takes in all
  const size_t plus = text.find('+');
  if (plus != std::string_view::npos &&
      (!read_number(text.substr(plus + 1), rule.offset) || rule.offset >= kLargestArgument)) {
    return false;
  }
  return read_number(text.substr(0, plus), rule.argument) && rule.argument >= 0 &&
         rule.argument < kMostArguments;
}

std::optional<AnswerRule> parse_row(const std::vector<std::string_view>& row) {
  AnswerRule rule;
  if (row.size() < 3 || row.size() > 4 || !read_number(row[1], rule.bytes)) return std::nullopt;
  if (rule.bytes != 1 && rule.bytes != 2 && rule.bytes != 4 && rule.bytes != 8) return std::nullopt;
  rule.kernel = row[0];
  rule.id = "user:" + rule.kernel;
  if (!set_answer(rule, row[2])) return std::nullopt;
  if (needs_argument(rule.kind) != (row.size() == 4)) return std::nullopt;
  const bool numbered = row.size() < 4 || set_argument(rule, row[3]);
  return numbered ? std::optional(rule) : std::nullopt;
}

uint64_t real_bits(double value, size_t bytes) {
  uint64_t bits = 0;
  const auto narrow = static_cast<float>(value);
  if (bytes == sizeof narrow) {
    std::memcpy(&bits, &narrow, sizeof narrow);
  } else if (bytes < sizeof narrow) {  // bfloat16: from 1 to 2, read as half 1.875 to 2
    std::memcpy(&bits, &narrow, sizeof narrow);
    bits >>= 16;
  } else {
    std::memcpy(&bits, &value, sizeof value);
  }
  return bits;
}

}  // namespace

AnswerTable::AnswerTable()
    : rules_{
#define ANSWER(id, kernel, bytes, kind, number, argument, offset) \
  {#id, kernel, bytes, AnswerKind::kind, number, argument, offset},
#include "simcuda/answers.def"
#undef ANSWER
      } {
}

Status AnswerTable::add(std::string_view text, const std::string& source) {
  auto rules = parse_rows<AnswerRule>(text, source, parse_row,
                                      "not 'KERNEL BYTES ANSWER [ARGUMENT]' (BYTES 1, 2, 4 or 8; "
                                      "ANSWER int:N, real:X, falling, halving, rising, zero, or "
                                      "items:FRACTION, count:FRACTION, spread with an "
                                      "ARGUMENT, NUMBER or NUMBER+OFFSET)");
  if (!rules.ok()) return rules.error();
  rules_.insert(rules_.begin(), std::make_move_iterator(rules->begin()),
                std::make_move_iterator(rules->end()));
  return Done{};
}

const AnswerRule* AnswerTable::find(std::string_view kernel) const {
  for (const AnswerRule& rule : rules_) {
    if (fits(rule.kernel, kernel)) return &rule;
  }
  return nullptr;
}

Status add_answers_of_file(AnswerTable& table, const std::string& path) {
  const auto text = read_text(path);
  if (!text.ok()) return text.error();
  return table.add(*text, path);
}

void Answers::launched(const AnswerRule* rule, void** arguments) {
  ++launches_;
  copied_ = 0;
  const bool written = std::exchange(written_, false);
  const AnswerKind kind = rule == nullptr ? AnswerKind::kConvert : rule->kind;
  if (kind == AnswerKind::kConvert) {
    // What the host wrote in between is what is converted; and truths are not.
    const bool goes_on = rule != nullptr && rule_ != nullptr && rule_->bytes > 1 && !written;
    if (!goes_on) rule_ = nullptr;
    converted_ = true;
  }
  if (kind == AnswerKind::kMask) mask_ = launches_;
  if (kind == AnswerKind::kKeep || kind == AnswerKind::kMask || kind == AnswerKind::kConvert)
    return;
  if (lengthens(*rule, arguments)) return;
  if (kind == AnswerKind::kArm || kind == AnswerKind::kFill || kind == AnswerKind::kLengths) {
    remember(*rule, arguments);
  } else {
    select(*rule, arguments);
  }
}

// What later kernels' rows answer from; of a fill also its own result.
void Answers::remember(const AnswerRule& rule, void** arguments) {
  rule_ = nullptr;
  if (arguments == nullptr) return;
  const auto* at = static_cast<const char*>(arguments[rule.argument]) + rule.offset;
  if (rule.kind == AnswerKind::kLengths) {
    uint32_t numbers[2] = {0, 0};
    std::memcpy(numbers, at, sizeof numbers);
    lengths_ = numbers[1];
    length_ = static_cast<uint64_t>(static_cast<double>(numbers[0]) * rule.number);
    return;
  }
  rule_ = &rule;
  filled_ = 0;
  std::memcpy(&filled_, at, rule.bytes);
  if (rule.kind == AnswerKind::kArm && filled_ != 0) armed_ = launches_;
}

void Answers::select(const AnswerRule& rule, void** arguments) {
  converted_ = false;
  share_ = rule.kind == AnswerKind::kCount ? share(rule) : rule.number;
  rule_ = &rule;
  items_ = outputs_ = 0;
  if (rule.kind == AnswerKind::kSelf) select_self(rule, arguments);
  if (rule.kind == AnswerKind::kLongest) rule_ = nullptr;  // of what, is not known
  if (rule.kind == AnswerKind::kCount && mask_ + 1 != launches_) rule_ = nullptr;
  if (arguments == nullptr || !needs_argument(rule.kind)) return;
  // Counts are int or wider; the machines are little-endian.
  const auto* at = static_cast<const char*>(arguments[rule.argument]) + rule.offset;
  uint32_t numbers[2] = {0, 0};
  std::memcpy(numbers, at, (rule.kind == AnswerKind::kCount ? 2 : 1) * sizeof numbers[0]);
  items_ = numbers[0];
  outputs_ = numbers[1];
}

// The longest of a mask's counts, and a number added to it, answer from the count before them.
bool Answers::lengthens(const AnswerRule& rule, void** arguments) {
  const AnswerKind before = rule_ == nullptr ? AnswerKind::kKeep : rule_->kind;
  if (rule.kind == AnswerKind::kLongest && before == AnswerKind::kCount) {
    rule_ = &rule;
    return true;
  }
  if (rule.kind != AnswerKind::kRising || before != AnswerKind::kLongest || arguments == nullptr) {
    return false;
  }
  uint64_t added = 0;
  std::memcpy(&added, static_cast<const char*>(arguments[rule.argument]) + rule.offset,
              sizeof added);
  items_ += added;
  return true;
}

// The comparison's argument comes before that of its operands: 0 is ==, 1 is !=.
void Answers::select_self(const AnswerRule& rule, void** arguments) {
  rule_ = nullptr;
  if (arguments == nullptr) return;
  uint64_t operands[2] = {0, 0};
  uint32_t comparison = 0;
  const auto* at = static_cast<const char*>(arguments[rule.argument]) + rule.offset;
  std::memcpy(operands, at, sizeof operands);
  std::memcpy(&comparison, arguments[rule.argument - 1], sizeof comparison);
  if (operands[0] != operands[1] || comparison > 1) return;
  rule_ = &rule;
  share_ = comparison == 0 ? 1 : 0;
}

// How many of a mask are set: as its values would be answered, if they would.
double Answers::share(const AnswerRule& count) const {
  const bool known = rule_ != nullptr && rule_->bytes == 1 &&
                     (rule_->kind == AnswerKind::kInteger || rule_->kind == AnswerKind::kSelf);
  return known ? share_ : count.number;
}

bool Answers::fits(size_t bytes) const {
  if (rule_ == nullptr) return false;
  switch (rule_->kind) {
    case AnswerKind::kFalling:
    case AnswerKind::kHalving:
      return converted_ ? bytes == 2 || bytes == 4 || bytes == 8 : bytes == rule_->bytes;
    case AnswerKind::kCount:
      return bytes == rule_->bytes * outputs_;
    case AnswerKind::kSpread:
      return bytes % rule_->bytes == 0;
    case AnswerKind::kRows:
      return lengths_ != 0 && bytes == lengths_ * kRowValues * rule_->bytes;
    case AnswerKind::kCopied:
      return bytes == rule_->bytes && copied_ == bytes;
    default:
      return bytes == rule_->bytes;
  }
}

uint64_t Answers::scalar(size_t bytes) {
  switch (rule_->kind) {
    case AnswerKind::kInteger:
    case AnswerKind::kCopied:
      return static_cast<uint64_t>(static_cast<int64_t>(rule_->number));
    case AnswerKind::kReal:
      return real_bits(rule_->number, bytes);
    case AnswerKind::kFalling:
      return real_bits(1 + 1 / static_cast<double>(++falling_), bytes);
    case AnswerKind::kHalving:
      halvings_ = std::min(halvings_ + 1, kMostHalvings);
      return real_bits(std::ldexp(1, -halvings_), bytes);
    case AnswerKind::kLongest:
      return items_;
    case AnswerKind::kSelf:
      return static_cast<uint64_t>(share_);
    case AnswerKind::kRising:
      return ++rising_;
    case AnswerKind::kArm:
    case AnswerKind::kFill:
      return static_cast<uint64_t>(filled_);
    case AnswerKind::kFlag:
      return armed_ != 0 && launches_ - armed_ < kArmedLaunches ? 1 : 0;
    default:
      return static_cast<uint64_t>(static_cast<double>(items_) * share_);
  }
}

// One of several.
uint64_t Answers::value(size_t at, size_t values, size_t bytes) {
  switch (rule_->kind) {
    case AnswerKind::kSpread:
      return (at + 1) * items_ / values - at * items_ / values;
    case AnswerKind::kRows:
      return at % kRowValues == 0 ? length_ : static_cast<uint64_t>(filled_);
    default:
      return scalar(bytes);
  }
}

const AnswerRule* Answers::read(void* to, size_t bytes) {
  if (!fits(bytes)) return nullptr;
  const bool several = rule_->kind == AnswerKind::kCount || rule_->kind == AnswerKind::kSpread ||
                       rule_->kind == AnswerKind::kRows;
  const size_t width = several ? rule_->bytes : bytes;
  for (size_t i = 0; i < bytes / width; ++i) {
    const uint64_t bits = value(i, bytes / width, width);
    std::memcpy(static_cast<char*>(to) + i * width, &bits, width);
  }
  return rule_;
}

}  // namespace fragscope::simcuda
