// Byte counts as error messages print them: a decimal number, a unit, and the precision both imply.
//
// "9.60 GiB" is not one number but 9.595 … 9.605 GiB; every comparison of printed figures has to
// know that. Units are binary whatever they are called: people and other frameworks write GB or G
// where the library meant GiB.
//
// Both readers work on squeezed text (squeezed_text.h): lower case, no white space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fragscope::diagnose {

struct Quantity {
  uint64_t bytes = 0;  // as printed, rounded to the nearest byte
  uint64_t low = 0;    // smallest and largest value that prints like this
  uint64_t high = 0;

  static Quantity exact(uint64_t value) { return {value, value, value}; }
  // 2^60 bytes and more is no memory size: an underflowed or unset 64-bit counter was printed.
  // Below it, sums and differences of a few figures stay within int64_t.
  bool is_sentinel() const { return bytes >= (uint64_t{1} << 60); }
};

struct FoundQuantity {
  Quantity value;
  size_t begin = 0;  // of the number
  size_t end = 0;    // behind the unit
};

enum class Unit {
  kRequired,  // a number without a unit is refused: it may be the head of a cut number
  kOptional,  // a number without a unit counts bytes
  kLast,      // the same, and the message is known to end with it: the end of the text cuts nothing
};

// The quantity that starts at `at`, behind at most three of ":=~(<".
std::optional<FoundQuantity> quantity_after(std::string_view text, size_t at, Unit unit);
// The quantity whose unit ends exactly at `end`.
std::optional<FoundQuantity> quantity_before(std::string_view text, size_t end);

// A plain whole number (device index, pid) that starts at `at` or ends at `end`.
std::optional<uint64_t> integer_after(std::string_view text, size_t at);
std::optional<uint64_t> integer_before(std::string_view text, size_t end, size_t* begin = nullptr);
// A fraction such as 0.85 or .9 behind at most three of ":=(\"'"; nothing outside 0 … 1.
std::optional<double> fraction_after(std::string_view text, size_t at);

}  // namespace fragscope::diagnose
