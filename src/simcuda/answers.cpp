#include "simcuda/answers.h"

#include <cstring>
#include <iterator>

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

bool set_answer(AnswerRule& rule, std::string_view text) {
  if (text == "zero") return true;
  if (text == "falling") {
    rule.kind = AnswerKind::kFalling;
    return rule.bytes >= 4;
  }
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || !read_number(text.substr(colon + 1), rule.number)) {
    return false;
  }
  const std::string_view kind = text.substr(0, colon);
  if (kind == "real") rule.kind = AnswerKind::kReal;
  if (kind == "items") rule.kind = AnswerKind::kItems;
  if (kind == "real") return rule.bytes >= 4;
  return kind == "int" || (kind == "items" && rule.number >= 0);
}

std::optional<AnswerRule> parse_row(const std::vector<std::string_view>& row) {
  AnswerRule rule;
  if (row.size() < 3 || row.size() > 4 || !read_number(row[1], rule.bytes)) return std::nullopt;
  if (rule.bytes != 1 && rule.bytes != 2 && rule.bytes != 4 && rule.bytes != 8) return std::nullopt;
  rule.kernel = row[0];
  rule.id = "user:" + rule.kernel;
  if (!set_answer(rule, row[2])) return std::nullopt;
  if ((rule.kind == AnswerKind::kItems) != (row.size() == 4)) return std::nullopt;
  constexpr int kMostArguments = 64;
  const bool numbered = row.size() < 4 || (read_number(row[3], rule.argument) &&
                                           rule.argument >= 0 && rule.argument < kMostArguments);
  return numbered ? std::optional(rule) : std::nullopt;
}

uint64_t real_bits(double value, size_t bytes) {
  uint64_t bits = 0;
  const auto narrow = static_cast<float>(value);
  if (bytes == sizeof narrow) {
    std::memcpy(&bits, &narrow, sizeof narrow);
  } else {
    std::memcpy(&bits, &value, sizeof value);
  }
  return bits;
}

}  // namespace

AnswerTable::AnswerTable()
    : rules_{
#define ANSWER(id, kernel, bytes, kind, number, argument) \
  {#id, kernel, bytes, AnswerKind::kind, number, argument},
#include "simcuda/answers.def"
#undef ANSWER
      } {
}

Status AnswerTable::add(std::string_view text, const std::string& source) {
  auto rules = parse_rows<AnswerRule>(text, source, parse_row,
                                      "not 'KERNEL BYTES ANSWER [ARGUMENT]' (BYTES 1, 2, 4 or 8; "
                                      "ANSWER int:N, real:X, falling, zero, "
                                      "or items:FRACTION with an ARGUMENT)");
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
  if (rule != nullptr && rule->kind == AnswerKind::kKeep) return;
  rule_ = nullptr;
  if (rule == nullptr) return;
  const void* argument = arguments == nullptr ? nullptr : arguments[rule->argument];
  if (rule->kind == AnswerKind::kArm) {
    unsigned char set = 0;
    if (argument != nullptr) std::memcpy(&set, argument, 1);
    if (set != 0) armed_ = launches_;
    return;
  }
  rule_ = rule;
  uint32_t items = 0;  // counts are int or wider; the machines are little-endian
  if (rule->kind == AnswerKind::kItems && argument != nullptr) {
    std::memcpy(&items, argument, sizeof items);
  }
  items_ = items;
}

std::optional<Answers::Answer> Answers::read(size_t bytes) {
  if (rule_ == nullptr || rule_->bytes != bytes) return std::nullopt;
  Answer answer{rule_, 0};
  switch (rule_->kind) {
    case AnswerKind::kInteger:
      answer.bits = static_cast<uint64_t>(static_cast<int64_t>(rule_->number));
      break;
    case AnswerKind::kReal:
      answer.bits = real_bits(rule_->number, bytes);
      break;
    case AnswerKind::kFalling:
      answer.bits = real_bits(1 + 1 / static_cast<double>(++falling_), bytes);
      break;
    case AnswerKind::kItems:
      answer.bits = static_cast<uint64_t>(static_cast<double>(items_) * rule_->number);
      break;
    case AnswerKind::kFlag:
      answer.bits = armed_ != 0 && launches_ - armed_ < kArmedLaunches ? 1 : 0;
      break;
    case AnswerKind::kArm:
    case AnswerKind::kKeep:
      return std::nullopt;
  }
  return answer;
}

}  // namespace fragscope::simcuda
