#include "base/text.h"

namespace fragscope {
namespace {

// Bytes of the well-formed UTF-8 character at the start of `text`; 0: there is none.
size_t character_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool no_character = (lead == 0xed && byte(1) > 0x9f) || (lead == 0xf4 && byte(1) > 0x8f);
  return overlong || no_character ? 0 : length;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = character_length(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    // U+0080 to U+009F are control characters to a terminal as well.
    const bool control =
        byte < 0x20 || byte == 0x7f ||
        (length == 2 && byte == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);
    if (length == 0 || control) {
      out += "\\x";
      out += "0123456789abcdef"[byte >> 4];
      out += "0123456789abcdef"[byte & 15];
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace fragscope
