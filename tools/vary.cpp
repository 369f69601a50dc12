#include "tools/vary.h"

#include <fmt/format.h>

#include <charconv>

namespace fragscope::tools {
namespace {

constexpr int64_t kMostValues = 100'000;

bool is_name(const std::string& text) {
  if (text.empty()) return false;
  for (const char c : text) {
    const bool good =
        (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    if (!good) return false;
  }
  return true;
}

bool parse_integer(std::string_view text, int64_t& value) {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

Error bad(const std::string& text, const std::string& why) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("--vary: '{}' {}; write NAME=1..256 or NAME=8,16,32", text, why)};
}

}  // namespace

Result<Variable> parse_variable(const std::string& text) {
  const size_t equals = text.find('=');
  Variable variable;
  variable.name = text.substr(0, equals);
  if (equals == std::string::npos || !is_name(variable.name)) return bad(text, "names no variable");
  const std::string values = text.substr(equals + 1);
  if (const size_t dots = values.find(".."); dots != std::string::npos) {
    int64_t first = 0;
    int64_t last = 0;
    if (!parse_integer(std::string_view(values).substr(0, dots), first) ||
        !parse_integer(std::string_view(values).substr(dots + 2), last) || first > last) {
      return bad(text, "is no range of integers");
    }
    if (last - first >= kMostValues) return bad(text, "has too many values");
    for (int64_t value = first; value <= last; ++value) {
      variable.values.push_back(std::to_string(value));
    }
    return variable;
  }
  for (size_t at = 0; at <= values.size();) {
    const size_t comma = std::min(values.find(',', at), values.size());
    if (comma == at) return bad(text, "has an empty value");
    variable.values.push_back(values.substr(at, comma - at));
    at = comma + 1;
  }
  return variable;
}

Result<std::vector<std::string>> with_value(const std::vector<std::string>& command,
                                            const std::string& name, const std::string& value) {
  const std::string hole = "{" + name + "}";
  std::vector<std::string> words = command;
  bool found = false;
  for (std::string& word : words) {
    for (size_t at = word.find(hole); at != std::string::npos;
         at = word.find(hole, at + value.size())) {
      word.replace(at, hole.size(), value);
      found = true;
    }
  }
  if (found) return words;
  return Error{ErrorCode::kInvalidArgument, fmt::format("no word of the command has {}", hole)};
}

}  // namespace fragscope::tools
