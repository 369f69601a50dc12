// Byte counts: constants, rounding, and the text forms that the command line reads and prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fragscope {

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

// `multiple` need not be a power of two; 0 is not allowed. Wraps only within `multiple` of 2^64.
constexpr uint64_t round_up(uint64_t value, uint64_t multiple) {
  const uint64_t rest = value % multiple;
  return rest == 0 ? value : value + (multiple - rest);
}

constexpr uint64_t round_down(uint64_t value, uint64_t multiple) {
  return value - value % multiple;
}

// "12GiB", "512M", "1.5g", "20971520" -> bytes. Suffixes are binary (K = KiB = 1024), case does not
// matter, a fraction is allowed with a suffix. Errors: kInvalidArgument, the text quotes the input.
Result<uint64_t> parse_size(std::string_view text);

// "12", "0.25", ".5" -> a number; whatever the locale. nullopt: anything else.
std::optional<double> parse_decimal(std::string_view text);

// PyTorch's own format (c10 format_size): "512 bytes", "1.00 KiB" … "1024.00 MiB", "1.46 GiB".
std::string format_size(uint64_t bytes);

}  // namespace fragscope
