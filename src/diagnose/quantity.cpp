#include "diagnose/quantity.h"

#include <array>
#include <cmath>
#include <utility>

namespace fragscope::diagnose {
namespace {

struct UnitName {
  std::string_view name;
  uint64_t bytes;
};

// Longest first: "gib" must not be read as "g".
constexpr std::array<UnitName, 15> kUnits = {{{"bytes", 1},
                                              {"byte", 1},
                                              {"kib", uint64_t{1} << 10},
                                              {"mib", uint64_t{1} << 20},
                                              {"gib", uint64_t{1} << 30},
                                              {"tib", uint64_t{1} << 40},
                                              {"kb", uint64_t{1} << 10},
                                              {"mb", uint64_t{1} << 20},
                                              {"gb", uint64_t{1} << 30},
                                              {"tb", uint64_t{1} << 40},
                                              {"k", uint64_t{1} << 10},
                                              {"m", uint64_t{1} << 20},
                                              {"g", uint64_t{1} << 30},
                                              {"t", uint64_t{1} << 40},
                                              {"b", 1}}};

constexpr size_t kMaxNumberLength = 40;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return c >= 'a' && c <= 'z'; }
bool is_separator(char c) { return c == '.' || c == ','; }

struct Decimal {
  long double value = 0;
  int decimals = 0;
};

// "1,073,741,824" groups thousands, "2,81" and "2.81" are decimals. One separator followed by
// exactly three digits is a decimal when it is a dot and a group when it is a comma: the libraries
// that group do it with commas, and none prints three decimals with a comma.
std::optional<Decimal> parse_decimal(std::string_view digits) {
  size_t separators = 0;
  size_t last = digits.size();
  for (size_t i = 0; i < digits.size(); ++i) {
    if (!is_separator(digits[i])) continue;
    ++separators;
    last = i;
  }
  const size_t behind = last < digits.size() ? digits.size() - last - 1 : 0;
  const bool grouped =
      separators > 1 ? behind == 3 : separators == 1 && digits[last] == ',' && behind == 3;
  Decimal result;
  bool fraction = false;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (is_separator(digits[i])) {
      fraction |= !grouped && i == last;
      continue;
    }
    result.value = result.value * 10 + static_cast<long double>(digits[i] - '0');
    result.decimals += fraction ? 1 : 0;
  }
  if (digits.empty() || (separators > 0 && behind == 0)) return std::nullopt;
  return result;
}

uint64_t clamp_round(long double value) {
  if (!(value > 0)) return 0;
  if (value >= 18446744073709551615.0L) return UINT64_MAX;
  return static_cast<uint64_t>(std::floor(value + 0.5L));
}

Quantity make_quantity(const Decimal& number, uint64_t unit) {
  const auto scale =
      static_cast<long double>(unit) / std::pow(10.0L, static_cast<long double>(number.decimals));
  const long double value = number.value * scale;
  // A whole number of bytes is exact; c10 prints so below 1025 bytes, "0 bytes" above all.
  const long double half = unit == 1 || number.value == 0 ? 0.0L : scale / 2;
  return {clamp_round(value), clamp_round(value - half), clamp_round(value + half)};
}

// Separators count only between digits: the dot of "is free.1.05 GiB" is no part of the number.
size_t number_begin(std::string_view text, size_t end) {
  size_t begin = end;
  while (begin > 0 && end - begin < kMaxNumberLength) {
    const char c = text[begin - 1];
    const bool inner = is_separator(c) && begin < end && begin > 1 && is_digit(text[begin - 2]);
    if (!is_digit(c) && !inner) break;
    --begin;
  }
  // "on GPU 3, 512.00MB": the device's index is not a group of the number.
  const bool device = begin >= 3 && text.substr(begin - 3, 3) == "gpu";
  const size_t comma = text.substr(0, end).find(',', begin);
  return device && comma != std::string_view::npos ? comma + 1 : begin;
}

size_t number_end(std::string_view text, size_t begin) {
  size_t end = begin;
  while (end < text.size() && end - begin < kMaxNumberLength) {
    const char c = text[end];
    const bool inner =
        is_separator(c) && end > begin && end + 1 < text.size() && is_digit(text[end + 1]);
    if (!is_digit(c) && !inner) break;
    ++end;
  }
  return end;
}

// Without white space a one-letter unit and the next word run together ("2.00gofwhich"): where a
// unit has to be, only "gpu" is none; where it may be missing, any word may follow ("7maxinuse").
const UnitName* unit_at(std::string_view text, size_t at, Unit need) {
  for (const auto& unit : kUnits) {
    if (text.substr(at, unit.name.size()) != unit.name) continue;
    const size_t behind = at + unit.name.size();
    const bool letter = behind < text.size() && is_letter(text[behind]);
    const bool word = need != Unit::kRequired ? letter : text.substr(at, 3) == "gpu";
    if (unit.name.size() > 1 || !word) return &unit;
  }
  return nullptr;
}

// The digits of a number that belong to the next line's "2031-05-07" (4) or "11:22:33" (2).
size_t time_digits(std::string_view text, size_t begin, size_t end) {
  const std::string_view rest = text.substr(end, 6);
  if (rest.size() < 6 || !is_digit(rest[1]) || !is_digit(rest[2]) || rest[0] != rest[3]) return 0;
  if (!is_digit(rest[4]) || !is_digit(rest[5])) return 0;
  const size_t digits = rest[0] == '-' ? 4 : rest[0] == ':' ? 2 : 0;
  return end - begin > digits ? digits : 0;
}

size_t skip_any(std::string_view text, size_t at, std::string_view skipped) {
  for (int i = 0; i < 3 && at < text.size() && skipped.find(text[at]) != skipped.npos; ++i) ++at;
  return at;
}

}  // namespace

std::optional<FoundQuantity> quantity_after(std::string_view text, size_t at, Unit unit) {
  const size_t begin = skip_any(text, at, ":=~(<");
  const size_t end = number_end(text, begin) - time_digits(text, begin, number_end(text, begin));
  const auto number = parse_decimal(text.substr(begin, end - begin));
  if (!number) return std::nullopt;
  // numpy prints "184. MiB" for three digits.
  const bool dot = end - begin >= 3 && end < text.size() && text[end] == '.' &&
                   unit_at(text, end + 1, unit) != nullptr;
  const size_t unit_begin = dot ? end + 1 : end;
  const UnitName* name = unit_at(text, unit_begin, unit);
  if (name == nullptr && (unit == Unit::kRequired || number->decimals > 0)) return std::nullopt;
  // The number may be cut.
  if (name == nullptr && end == text.size() && unit != Unit::kLast) return std::nullopt;
  const uint64_t bytes = name == nullptr ? 1 : name->bytes;
  const size_t behind = name == nullptr ? end : unit_begin + name->name.size();
  return FoundQuantity{make_quantity(*number, bytes), begin, behind};
}

std::optional<FoundQuantity> quantity_before(std::string_view text, size_t end) {
  for (const auto& unit : kUnits) {
    const size_t length = unit.name.size();
    if (end < length + 1 || text.substr(end - length, length) != unit.name) continue;
    if (!is_digit(text[end - length - 1])) continue;
    const size_t begin = number_begin(text, end - length);
    const auto number = parse_decimal(text.substr(begin, end - length - begin));
    if (!number) return std::nullopt;
    return FoundQuantity{make_quantity(*number, unit.bytes), begin, end};
  }
  return std::nullopt;
}

std::optional<uint64_t> integer_after(std::string_view text, size_t at) {
  uint64_t value = 0;
  size_t end = at;
  while (end < text.size() && is_digit(text[end])) {
    const auto digit = static_cast<uint64_t>(text[end++] - '0');
    if (value > (UINT64_MAX - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  if (end == at) return std::nullopt;
  return value;
}

std::optional<uint64_t> integer_before(std::string_view text, size_t end, size_t* begin) {
  size_t at = end;
  while (at > 0 && is_digit(text[at - 1]) && end - at < 20) --at;
  if (begin != nullptr) *begin = at;
  if (at == end) return std::nullopt;
  return integer_after(text.substr(0, end), at);
}

std::optional<double> fraction_after(std::string_view text, size_t at) {
  size_t begin = skip_any(text, at, ":=(\"'");
  if (begin < text.size() && text[begin] == '.') {
    if (begin + 1 >= text.size() || !is_digit(text[begin + 1])) return std::nullopt;
  } else if (begin >= text.size() || !is_digit(text[begin])) {
    return std::nullopt;
  }
  double value = 0;
  double scale = 0;
  for (size_t i = begin; i < text.size() && i - begin < 12; ++i) {
    if (text[i] == '.' && scale == 0) {
      scale = 1;
      continue;
    }
    if (!is_digit(text[i])) break;
    value = value * 10 + (text[i] - '0');
    scale *= 10;
  }
  if (scale > 1) value /= scale;
  if (!(value > 0) || value > 1) return std::nullopt;
  return value;
}

}  // namespace fragscope::diagnose
