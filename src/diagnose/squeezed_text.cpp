#include "diagnose/squeezed_text.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>

namespace fragscope::diagnose {
namespace {

constexpr size_t kMaxPending = 4096;
constexpr size_t kMaxPrefixPart = 80;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
// Also the bytes of a hard space and the head of "&nbsp;".
bool ends_word(char c) { return is_space(c) || c == '\xc2' || c == '&'; }

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

bool is_letter(char c) { return lower(c) >= 'a' && lower(c) <= 'z'; }

// "<b>", "</span>", "<td class=…>": tags of the kinds that pages put around text, and no others:
// "</torch_33_2342>" is the name of a file.
size_t tag_markup_length(std::string_view text) {
  size_t name = 1;
  if (name < text.size() && text[name] == '/') ++name;
  size_t end = name;
  while (end < text.size() && end - name < 8 && (is_letter(text[end]) || is_digit(text[end])))
    ++end;
  std::string tag(text.substr(name, end - name));
  std::transform(tag.begin(), tag.end(), tag.begin(), lower);
  constexpr std::string_view kTags[] = {"a",  "b",  "br", "code", "div",  "em",   "font",
                                        "i",  "li", "p",  "pre",  "samp", "span", "strong",
                                        "td", "tr", "tt", "kbd",  "u"};
  if (std::find(std::begin(kTags), std::end(kTags), tag) == std::end(kTags)) return 0;
  const size_t close = text.substr(0, kMaxPrefixPart * 2).find('>');
  const bool ends = end < text.size() && (text[end] == '>' || text[end] == ' ' || text[end] == '/');
  return ends && close != std::string_view::npos ? close + 1 : 0;
}

// Entities of characters that are white space or decoration, and of quotes.
size_t entity_length(std::string_view text) {
  for (const std::string_view entity :
       {"&nbsp;", "&quot;", "&gt;", "&#160;", "&#xa0;", "&#39;", "&apos;", "&#x27;", "&#34;",
        "&#10;", "&#13;", "&thinsp;", "&ensp;", "&zwnj;", "&shy;", "&#62;"}) {
    if (starts_with(text, entity)) return entity.size();
  }
  return 0;
}

size_t markup_length(std::string_view text) {
  return text[0] == '<' ? tag_markup_length(text) : entity_length(text);
}

bool is_decoration(char c) {
  return is_space(c) || c == '*' || c == '`' || c == '>' || c == '|' || c == '#' || c < ' ' ||
         c > '~';
}

size_t time_stamp_length(std::string_view text) {
  size_t at = 0;
  size_t colons = 0;
  size_t dashes = 0;
  bool slash = false;
  while (at < text.size() && at < 40) {
    const char c = text[at];
    if (!is_digit(c) && std::string_view(":.,-/+TZ").find(c) == std::string_view::npos) break;
    colons += c == ':' ? 1 : 0;
    dashes += c == '-' || c == '/' ? 1 : 0;
    slash |= c == '/';
    ++at;
  }
  const bool ends = at == text.size() || ends_word(text[at]) || text[at] == ']';
  // "05-07" is a day; "5.32/23.68" is none.
  const bool time =
      at >= 5 && is_digit(text[0]) && (colons >= 2 || dashes >= 2 || (dashes == 1 && !slash));
  return ends && time ? at : 0;
}

size_t level_length(std::string_view text) {
  for (const std::string_view level : {"error", "info", "warning", "warn", "critical", "fatal"}) {
    if (!starts_with(text, level)) continue;
    const size_t length = level.size();
    if (length < text.size() && (ends_word(text[length]) || text[length] == ']')) return length;
  }
  return 0;
}

// Outside brackets a level is in capitals: a line can break in front of the word "error".
size_t bare_level_length(std::string_view text) {
  const bool capitals = text.size() > 1 && text[0] != lower(text[0]) && text[1] != lower(text[1]);
  return capitals ? level_length(text) : 0;
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

bool is_month(std::string_view text) {
  constexpr std::string_view kMonths = "jan feb mar apr may jun jul aug sep oct nov dec";
  std::string word(text.substr(0, 3));
  std::transform(word.begin(), word.end(), word.begin(), lower);
  return word.size() == 3 && kMonths.find(word) != std::string_view::npos && text.size() > 3 &&
         text[3] == ' ';
}

// "Apr 17 23:09:42 node7 python[2840147]: " of syslog and journald.
size_t syslog_length(std::string_view text) {
  if (!is_month(text)) return 0;
  const size_t end = text.substr(0, kMaxPrefixPart).find("]: ");
  const size_t bracket = text.substr(0, kMaxPrefixPart).find('[');
  const bool process = end != std::string_view::npos && bracket < end &&
                       std::all_of(text.begin() + static_cast<std::ptrdiff_t>(bracket) + 1,
                                   text.begin() + static_cast<std::ptrdiff_t>(end), is_digit);
  return process ? end + 2 : 0;
}

// "stderr F " of a container runtime's log, "[1,0]<stderr>:" of mpirun --tag-output, "I0101
// 10:00:00.000000 77 file.cc:12] " of glog.
size_t stream_length(std::string_view text) {
  for (const std::string_view stream : {"stderr F ", "stdout F ", "stderr P ", "stdout P "}) {
    if (text.substr(0, stream.size()) == stream) return stream.size();
  }
  const size_t mpi = text.substr(0, 24).find("<stderr>:");
  if (text[0] == '[' && mpi != std::string_view::npos) return mpi + 9;
  const bool glog = text.size() > 6 && std::string_view("IWEF").find(text[0]) != text.npos &&
                    std::all_of(text.begin() + 1, text.begin() + 5, is_digit) && text[5] == ' ';
  const size_t end = glog ? text.substr(0, kMaxPrefixPart).find("] ") : std::string_view::npos;
  return end == std::string_view::npos ? 0 : end + 1;
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
    while (at < line.size() && line[at] != '\x1b') {
      const size_t length = line[at] == '&' ? entity_length(line.substr(at)) : 0;
      if (length == 0 && !is_decoration(line[at])) break;
      at += std::max<size_t>(length, 1);
    }
    const std::string_view rest = line.substr(at);
    size_t length = 0;
    if (!rest.empty() && rest[0] == '\x1b') length = 1 + colour_length(rest.substr(1));
    if (rest.empty()) break;
    for (const auto measure : {stream_length, syslog_length, bracket_length, time_stamp_length,
                               bare_level_length, tag_length}) {
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
    if (c == '\\') {
      skipped = escape_length(line.substr(at));
      // An escaped line break begins a line, with its prefix.
      const bool new_line = line[at + skipped - 1] == 'n' && skipped > 1 && line[at + 1] != 'u';
      if (new_line) skipped += log_prefix_length(line.substr(at + skipped));
    }
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
