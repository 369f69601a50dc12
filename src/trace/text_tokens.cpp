#include "trace/text_tokens.h"

#include <charconv>
#include <cstdio>

namespace fragscope::trace {
namespace {

template <typename T>
std::optional<T> parse_all(std::string_view text, int base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// `at` is behind a backslash; moves behind the escape.
std::optional<char> unescape(std::string_view line, size_t& at) {
  if (at >= line.size()) return std::nullopt;
  const char kind = line[at++];
  switch (kind) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case '"':
    case '\\':
      return kind;
    case 'x': {
      const auto value = parse_all<uint8_t>(line.substr(at, 2), 16);
      if (!value || line.size() - at < 2) return std::nullopt;
      at += 2;
      return static_cast<char>(*value);
    }
    default:
      return std::nullopt;
  }
}

// `at` is behind the opening quote; moves behind the closing one.
bool read_quoted(std::string_view line, size_t& at, std::string& out) {
  while (at < line.size()) {
    const char c = line[at++];
    if (c == '"') return true;
    if (c != '\\') {
      out += c;
      continue;
    }
    const auto plain = unescape(line, at);
    if (!plain) return false;
    out += *plain;
  }
  return false;
}

}  // namespace

std::optional<std::vector<Token>> split_line(std::string_view line) {
  std::vector<Token> tokens;
  size_t at = 0;
  while (at < line.size()) {
    if (is_blank(line[at])) {
      ++at;
      continue;
    }
    Token token;
    while (at < line.size() && !is_blank(line[at])) {
      const char c = line[at++];
      if (c == '"' && token.value.empty() && !token.quoted) {
        token.quoted = true;
        if (!read_quoted(line, at, token.value)) return std::nullopt;
      } else if (c == '=' && !token.has_key) {
        token.has_key = true;
        token.quoted = false;
        token.key = std::move(token.value);
        token.value.clear();
      } else {
        token.value += c;
      }
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::string quote(std::string_view value) {
  bool plain = !value.empty();
  for (const char c : value) {
    plain = plain && c > ' ' && c != '"' && c != '\\' && c != '=' && c != '#' && c != 0x7f;
  }
  if (plain) return std::string(value);
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::optional<uint64_t> parse_number(std::string_view text) {
  const bool is_hex = text.substr(0, 2) == "0x";
  return parse_all<uint64_t>(is_hex ? text.substr(2) : text, is_hex ? 16 : 10);
}

std::optional<int64_t> parse_signed(std::string_view text) { return parse_all<int64_t>(text, 10); }

std::string hex(uint64_t value) {
  char out[24];
  std::snprintf(out, sizeof out, "0x%llx", static_cast<unsigned long long>(value));
  return out;
}

}  // namespace fragscope::trace
