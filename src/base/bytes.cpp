#include "base/bytes.h"

#include <cctype>

namespace fragscope {
namespace {

Error bad_size(std::string_view text) {
  return {ErrorCode::kInvalidArgument,
          "'" + std::string(text) + "' is not a size; write bytes (20971520) or 512M, 1.5GiB"};
}

// Multiplier of a suffix such as "", "b", "k", "kb", "kib"; 0 when unknown.
uint64_t suffix_multiplier(std::string suffix) {
  for (char& c : suffix) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (suffix.empty() || suffix == "b" || suffix == "bytes") return 1;
  const std::string rest = suffix.substr(1);
  if (!rest.empty() && rest != "b" && rest != "ib") return 0;
  switch (suffix[0]) {
    case 'k':
      return kKiB;
    case 'm':
      return kMiB;
    case 'g':
      return kGiB;
    case 't':
      return 1024 * kGiB;
    default:
      return 0;
  }
}

}  // namespace

// By hand: strtod() reads what the host's locale says, from_chars() for doubles brings libm along,
// which the preloaded library must not need.
std::optional<double> parse_decimal(std::string_view text) {
  double value = 0;
  double scale = 1;
  bool fraction = false;
  size_t digits = 0;
  for (const char c : text) {
    if (c == '.' && !fraction) {
      fraction = true;
    } else if (c >= '0' && c <= '9') {
      value = value * 10 + (c - '0');
      if (fraction) scale *= 10;
      ++digits;
    } else {
      return std::nullopt;
    }
  }
  if (digits == 0 || digits > 300) return std::nullopt;
  return value / scale;
}

Result<uint64_t> parse_size(std::string_view text) {
  const std::string copy(text);
  size_t digits = 0;
  bool fraction = false;
  while (digits < copy.size() && (std::isdigit(static_cast<unsigned char>(copy[digits])) ||
                                  (copy[digits] == '.' && !fraction))) {
    fraction |= copy[digits] == '.';
    ++digits;
  }
  if (digits == 0 || copy[0] == '.') return bad_size(text);
  size_t start = digits;
  while (start < copy.size() && copy[start] == ' ') ++start;
  const uint64_t multiplier = suffix_multiplier(copy.substr(start));
  if (multiplier == 0 || (fraction && multiplier == 1)) return bad_size(text);
  if (fraction) {
    const double number = parse_decimal(std::string_view(copy).substr(0, digits)).value_or(0);
    const double value = number * static_cast<double>(multiplier);
    if (!(value < 9.2e18)) return bad_size(text);
    return static_cast<uint64_t>(value + 0.5);
  }
  uint64_t value = 0;
  for (size_t i = 0; i < digits; ++i) {
    const auto digit = static_cast<uint64_t>(copy[i] - '0');
    if (value > (UINT64_MAX - digit) / 10) return bad_size(text);
    value = value * 10 + digit;
  }
  if (value > UINT64_MAX / multiplier) return bad_size(text);
  return value * multiplier;
}

}  // namespace fragscope
