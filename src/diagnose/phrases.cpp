#include "diagnose/phrases.h"

#include <array>
#include <iterator>

namespace fragscope::diagnose {
namespace {

constexpr uint8_t id(Field field) { return static_cast<uint8_t>(field); }
constexpr uint8_t id(Mark mark) { return static_cast<uint8_t>(mark); }
constexpr uint8_t id(Hint hint) { return static_cast<uint8_t>(hint); }

constexpr Phrase opener(std::string_view text, Opens opens, Family family) {
  return {.text = text, .opens = opens, .family = family};
}
constexpr Phrase figure(std::string_view text, Opens opens, Family family, Field field, At at) {
  return {.text = text, .opens = opens, .family = family, .field = id(field), .at = at};
}
constexpr Phrase mark(std::string_view text, Mark value) {
  return {.text = text, .mark = id(value)};
}
constexpr Phrase hint(std::string_view text, Hint value) {
  return {.text = text, .hint = id(value), .special = Special::kNegatable};
}
constexpr Phrase special(std::string_view text, Special value) {
  return {.text = text, .special = value};
}

constexpr Phrase kPhrases[] = {
#define OPENER(text, opens, family) opener(text, Opens::opens, Family::family),
#define FIGURE(text, opens, family, field, at) \
  figure(text, Opens::opens, Family::family, Field::field, At::at),
#define MARK(text, value) mark(text, Mark::value),
#define HINT(text, value) hint(text, Hint::value),
#define SPECIAL(text, value) special(text, Special::value),
#include "diagnose/phrases.def"
#undef OPENER
#undef FIGURE
#undef MARK
#undef HINT
#undef SPECIAL
};

constexpr size_t kCount = std::size(kPhrases);

constexpr bool squeezed(std::string_view text) {
  for (const char c : text) {
    if (c <= ' ' || c > '~' || (c >= 'A' && c <= 'Z')) return false;
  }
  return text.size() >= 2 && text.size() <= kLongestPhrase;
}
constexpr bool all_squeezed() {
  for (const Phrase& phrase : kPhrases) {
    if (!squeezed(phrase.text)) return false;
  }
  return true;
}
static_assert(all_squeezed(), "a phrase has white space, capitals, or a length out of range");

struct Tables {
  std::array<int16_t, kCount> next{};
  std::array<int16_t, size_t{128} * 128> heads{};

  Tables() {
    heads.fill(-1);
    next.fill(-1);
    for (size_t i = kCount; i-- > 0;) {
      const auto a = static_cast<uint8_t>(kPhrases[i].text[0]);
      const auto b = static_cast<uint8_t>(kPhrases[i].text[1]);
      int16_t& head = heads[a * size_t{128} + b];
      next[i] = head;
      head = static_cast<int16_t>(i);
    }
  }
};

}  // namespace

const PhraseIndex& PhraseIndex::instance() {
  static const Tables tables;
  static const PhraseIndex index{kPhrases, tables.next.data(), tables.heads.data()};
  return index;
}

}  // namespace fragscope::diagnose
