// Files of rows: words between blanks, '#' begins a comment, empty lines are nothing.
#pragma once

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fragscope::simcuda {

template <typename T>
bool read_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

inline std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> found;
  line = line.substr(0, line.find('#'));
  constexpr std::string_view kBlank = " \t\r";
  for (size_t at = line.find_first_not_of(kBlank); at != std::string_view::npos;
       at = line.find_first_not_of(kBlank, at)) {
    const size_t end = std::min(line.find_first_of(kBlank, at), line.size());
    found.push_back(line.substr(at, end - at));
    at = end;
  }
  return found;
}

// One Row per line that has words; `parse(words)` returns an optional Row. kInvalidArgument
// "source:line: complaint" at the first that it refuses.
template <typename Row, typename Parse>
Result<std::vector<Row>> parse_rows(std::string_view text, const std::string& source, Parse parse,
                                    const char* complaint) {
  std::vector<Row> rows;
  for (int line = 1; !text.empty(); ++line) {
    const std::string_view one = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
    const std::vector<std::string_view> words = words_of(one);
    if (words.empty()) continue;
    std::optional<Row> row = parse(words);
    if (!row) {
      return Error{ErrorCode::kInvalidArgument,
                   source + ":" + std::to_string(line) + ": " + complaint};
    }
    rows.push_back(std::move(*row));
  }
  return rows;
}

inline Result<std::string> read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return Error{ErrorCode::kNotFound, path + ": cannot be read"};
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

}  // namespace fragscope::simcuda
