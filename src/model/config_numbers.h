// Numbers as PyTorch's settings parsers read them: std::stoi, std::stoull and std::stod, with their
// acceptance (leading blanks, sign, trailing text) and, as errors, their exception texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace fragscope::model {

// nullopt: fine. Otherwise the text of PyTorch's error.
using ConfigFailure = std::optional<std::string>;

Result<int> read_int(const std::string& text);                 // "stoi"
Result<uint64_t> read_unsigned_long(const std::string& text);  // "stoul"
Result<uint64_t> read_unsigned(const std::string& text);       // "stoull"
Result<double> read_double(const std::string& text);           // "stod"

// What a C++ stream reads as a double with nothing behind it: no hexadecimals, infinities or NaN.
Result<double> read_whole_decimal(std::string_view text);

// Cuts at `,` `:` `[` `]`, which are tokens themselves. Spaces are dropped; other white space only
// if `drop_all_blanks`.
std::vector<std::string> cut_settings(std::string_view text, bool drop_all_blanks);

}  // namespace fragscope::model
