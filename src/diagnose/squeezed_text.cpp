#include "diagnose/squeezed_text.h"

#include <algorithm>
#include <array>

namespace fragscope::diagnose {
namespace {

constexpr size_t kMaxPending = 4096;
constexpr size_t kMaxPrefixPart = 80;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool starts_with(std::string_view text, std::string_view what) {
  return std::equal(what.begin(), what.end(), text.begin(),
                    text.begin() + static_cast<std::ptrdiff_t>(std::min(text.size(), what.size())),
                    [](char a, char b) { return a == lower(b); });
}

// "[0;31m" behind an escape character, however that was written.
size_t colour_length(std::string_view text) {
  if (text.empty() || text[0] != '[') return 0;
  size_t at = 1;
  while (at < text.size() && at < 16 && (is_digit(text[at]) || text[at] == ';' || text[at] == '?'))
    ++at;
  return at < text.size() && ((lower(text[at]) >= 'a' && lower(text[at]) <= 'z')) ? at + 1 : 0;
}

// What follows a run of backslashes: n, t, r of a JSON or Python string, a \u or \x escape.
size_t escape_length(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && text[at] == '\\') ++at;
  if (at == text.size()) return at;
  const char kind = text[at];
  if (kind == 'n' || kind == 't' || kind == 'r') return at + 1;
  size_t length = at;
  if (kind == 'u' && text.size() >= at + 5) length = at + 5;
  if (kind == 'x' && text.size() >= at + 3) length = at + 3;
  if (text.substr(at, 3) == "033") length = at + 3;
  const std::string_view code = text.substr(at, length - at);
  const bool escape = starts_with(code, "u001b") || starts_with(code, "x1b") || code == "033";
  if (escape) length += colour_length(text.substr(length));
  return length == 0 ? 1 : length;
}

size_t markup_length(std::string_view text) {
  for (const std::string_view tag : {"<br>", "<br/>", "<br />", "&nbsp;", "&quot;"}) {
    if (starts_with(text, tag)) return tag.size();
  }
  return 0;
}

bool is_decoration(char c) {
  return is_space(c) || c == '*' || c == '`' || c == '>' || c == '|' || c == '#' || c < ' ' ||
         c > '~';
}

size_t time_stamp_length(std::string_view text) {
  size_t at = 0;
  size_t colons = 0;
  size_t dashes = 0;
  while (at < text.size() && at < 40) {
    const char c = text[at];
    if (!is_digit(c) && std::string_view(":.,-/+TZ").find(c) == std::string_view::npos) break;
    colons += c == ':' ? 1 : 0;
    dashes += c == '-' || c == '/' ? 1 : 0;
    ++at;
  }
  const bool ends = at == text.size() || is_space(text[at]) || text[at] == ']';
  const bool time = at >= 5 && is_digit(text[0]) && (colons >= 2 || dashes >= 1);
  return ends && time ? at : 0;
}

size_t level_length(std::string_view text) {
  for (const std::string_view level : {"error", "info", "warning", "warn", "critical", "fatal"}) {
    if (!starts_with(text, level)) continue;
    const size_t length = level.size();
    if (length < text.size() && (is_space(text[length]) || text[length] == ']')) return length;
  }
  return 0;
}

// "[rank0]: ", "[2024-05-01 10:00:00] ", "[ERROR]": brackets that loggers write, and no others.
size_t bracket_length(std::string_view text) {
  if (text.empty() || (text[0] != '[' && text[0] != '(')) return 0;
  const size_t close = text.substr(0, kMaxPrefixPart).find(text[0] == '[' ? ']' : ')');
  if (close == std::string_view::npos) return 0;
  const std::string_view inside = text.substr(1, close - 1);
  bool logger = false;
  if (text[0] == '(') {
    logger = inside.find("pid=") != std::string_view::npos ||
             inside.find("ip=") != std::string_view::npos;
  } else {
    logger = starts_with(inside, "rank") || starts_with(inside, "default") ||
             level_length(text.substr(1)) > 0 || time_stamp_length(inside) > 0 ||
             inside.find(".py:") != std::string_view::npos;
  }
  if (!logger) return 0;
  return close + 1 + (close + 1 < text.size() && text[close + 1] == ':' ? 1 : 0);
}

// "engine.py:366] " of glog-like formats, "3: " of srun --label, "vllm-1  | " of compose.
size_t tag_length(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && at < kMaxPrefixPart && !is_space(text[at])) ++at;
  if (at == 0 || at == text.size()) return 0;
  const std::string_view word = text.substr(0, at);
  if (word.back() == ']' && word.find(".py:") != std::string_view::npos) return at;
  if (word.size() <= 5 && word.back() == ':' &&
      std::all_of(word.begin(), word.end() - 1, is_digit) && word.size() > 1) {
    return at;
  }
  size_t bar = at;
  while (bar < text.size() && text[bar] == ' ') ++bar;
  return bar + 1 < text.size() && text[bar] == '|' && text[bar + 1] == ' ' ? bar + 1 : 0;
}

}  // namespace

size_t log_prefix_length(std::string_view line) {
  size_t at = 0;
  for (int parts = 0; parts < 8; ++parts) {
    while (at < line.size() && is_decoration(line[at]) && line[at] != '\x1b') ++at;
    const std::string_view rest = line.substr(at);
    size_t length = 0;
    if (!rest.empty() && rest[0] == '\x1b') length = 1 + colour_length(rest.substr(1));
    for (const auto measure : {bracket_length, time_stamp_length, level_length, tag_length}) {
      if (length == 0) length = measure(rest);
    }
    if (length == 0) break;
    at += length;
  }
  return at;
}

void TextSqueezer::squeeze_line(std::string_view line, bool at_line_start, std::string& out) {
  size_t at = at_line_start ? log_prefix_length(line) : 0;
  while (at < line.size()) {
    const char c = line[at];
    size_t skipped = 0;
    if (c == '\x1b') skipped = 1 + colour_length(line.substr(at + 1));
    if (c == '\\') skipped = escape_length(line.substr(at));
    if (c == '<' || c == '&') skipped = markup_length(line.substr(at));
    if (skipped == 0 && !is_decoration(c)) out.push_back(lower(c));
    at += std::max<size_t>(skipped, 1);
  }
}

void TextSqueezer::feed(std::string_view raw, std::string& out) {
  while (!raw.empty()) {
    const size_t newline = raw.find('\n');
    const size_t take = std::min(newline, kMaxPending);
    const std::string_view piece = raw.substr(0, take);
    const bool whole = newline != std::string_view::npos && take == newline;
    if (whole && pending_.empty()) {
      squeeze_line(piece, pending_is_line_start_, out);
      pending_is_line_start_ = true;
    } else {
      pending_.append(piece);
      if (whole || pending_.size() >= kMaxPending) {
        squeeze_line(pending_, pending_is_line_start_, out);
        pending_.clear();
        pending_is_line_start_ = whole;
      }
    }
    raw.remove_prefix(std::min(raw.size(), piece.size() + (whole ? 1 : 0)));
  }
}

void TextSqueezer::finish(std::string& out) {
  squeeze_line(pending_, pending_is_line_start_, out);
  pending_.clear();
  pending_is_line_start_ = true;
}

}  // namespace fragscope::diagnose
