// Words of a line of the text form: quoting and numbers, both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fragscope::trace {

struct Token {
  std::string key;  // of key=value
  bool has_key = false;
  std::string value;    // unquoted
  bool quoted = false;  // the value was in quotes
};

// Nothing when a quote does not end or an escape is wrong.
std::optional<std::vector<Token>> split_line(std::string_view line);

// In quotes if it has to be.
std::string quote(std::string_view value);

std::optional<uint64_t> parse_number(std::string_view text);  // decimal or 0x…
std::optional<int64_t> parse_signed(std::string_view text);
std::string hex(uint64_t value);

}  // namespace fragscope::trace
