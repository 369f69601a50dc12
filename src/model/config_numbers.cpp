#include "model/config_numbers.h"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <locale>
#include <sstream>

namespace fragscope::model {
namespace {

// Runs a strto… function the way std::sto… does.
template <typename Number, typename Read>
Result<Number> read_number(const std::string& text, const char* name, Read read) {
  const Error failure{ErrorCode::kInvalidArgument, name};
  const int saved = errno;
  errno = 0;
  char* end = nullptr;
  const auto value = read(text.c_str(), &end);
  const bool out_of_range = errno == ERANGE;
  errno = saved;
  if (end == text.c_str() || out_of_range) return failure;
  return static_cast<Number>(value);
}

}  // namespace

Result<int> read_int(const std::string& text) {
  const Result<long> value = read_number<long>(
      text, "stoi", [](const char* from, char** end) { return std::strtol(from, end, 10); });
  if (!value) return value.error();
  if (value.value() < INT_MIN || value.value() > INT_MAX) {
    return Error{ErrorCode::kInvalidArgument, "stoi"};
  }
  return static_cast<int>(value.value());
}

Result<uint64_t> read_unsigned_long(const std::string& text) {
  return read_number<uint64_t>(
      text, "stoul", [](const char* from, char** end) { return std::strtoul(from, end, 10); });
}

Result<uint64_t> read_unsigned(const std::string& text) {
  return read_number<uint64_t>(
      text, "stoull", [](const char* from, char** end) { return std::strtoull(from, end, 10); });
}

Result<double> read_double(const std::string& text) {
  return read_number<double>(text, "stod",
                             [](const char* from, char** end) { return std::strtod(from, end); });
}

Result<double> read_whole_decimal(std::string_view text) {
  std::istringstream stream{std::string(text)};
  stream.imbue(std::locale::classic());
  double value{};
  if (stream >> value && stream.peek() == std::istringstream::traits_type::eof()) return value;
  return Error{ErrorCode::kInvalidArgument, "not a decimal number"};
}

std::vector<std::string> cut_settings(std::string_view text, bool drop_all_blanks) {
  std::vector<std::string> tokens;
  std::string word;
  const auto finish_word = [&] {
    if (!word.empty()) tokens.push_back(word);
    word.clear();
  };
  for (const char c : text) {
    if (c == ',' || c == ':' || c == '[' || c == ']') {
      finish_word();
      tokens.emplace_back(1, c);
    } else if (c != ' ' && !(drop_all_blanks && (c >= '\t' && c <= '\r'))) {
      word += c;
    }
  }
  finish_word();
  return tokens;
}

}  // namespace fragscope::model
