// The table of phrases (phrases.def) and their search in squeezed text.
#pragma once

#include <cstdint>
#include <string_view>

#include "diagnose/oom_message.h"

namespace fragscope::diagnose {

// Where the figure of a phrase stands.
enum class At : uint8_t {
  kNone,
  kAfter,         // behind the phrase, with a unit
  kAfterBytes,    // behind the phrase, bytes when there is no unit
  kLast,          // the same, and the message ends with it
  kBefore,        // in front of the phrase
  kBeforeListed,  // in front of it, and in front of that ";", "," or "("
};

enum class Special : uint8_t {
  kNone,
  kDeviceAfter,     // a device index follows
  kDeviceBefore,    // a device index stands in front
  kProcess,         // "process N has X" or "this process has X" stands in front
  kMemoryFraction,  // a fraction follows
  kUtilization,
  kMemlock,         // kibibytes follow
  kHamiFigures,     // "used/limit" follows
  kVllmFree,        // "(free/total" follows
  kJuliaDevice,     // "91.54%(in use/total)" follows
  kRmmSizes,        // "current, max, try" follow
  kArenaFree,       // "N is smaller than requested bytes of M" follows
  kGgmlBuffer,      // a size follows when "failed to allocate" stands in front
  kShmSize,         // a size follows: /dev/shm
  kWorkerCount,     // an integer follows: DataLoader workers
  kGenericOom,      // counts only beside "cuda", "gpu" or "hip"
  kPinnedArgument,  // an invalid argument is about page-locking only when that was named before
  kNegatable,       // a hint that "=False" or a preceding "no" takes back
};

// How a phrase relates to a message.
enum class Opens : uint8_t {
  kNo,      // belongs to an open message, or to none
  kYes,     // starts one, unless it only repeats or refines what is open
  kAlways,  // starts one: the second of two is another message
};

inline constexpr uint8_t kNothing = 0xff;

struct Phrase {
  std::string_view text;
  Opens opens = Opens::kNo;
  Family family = Family::kNone;
  uint8_t field = kNothing;
  At at = At::kNone;
  uint8_t mark = kNothing;
  uint8_t hint = kNothing;
  Special special = Special::kNone;
};

inline constexpr size_t kLongestPhrase = 96;

// Calls found(phrase, position) for each phrase that starts in [begin, end), by position and then
// in the order of the table. A phrase may reach behind `end`.
template <typename Found>
void find_phrases(std::string_view text, size_t begin, size_t end, Found&& found);

// Does `what` end, or begin, at this place of a text?
inline bool ends_at(std::string_view text, size_t end, std::string_view what) {
  return end >= what.size() && text.substr(end - what.size(), what.size()) == what;
}
inline bool starts_at(std::string_view text, size_t at, std::string_view what) {
  return at <= text.size() && text.substr(at, what.size()) == what;
}

struct PhraseIndex {
  static const PhraseIndex& instance();
  // First phrase with this head; the next ones follow through `next`. -1 ends.
  int16_t first(char a, char b) const {
    return heads[static_cast<uint8_t>(a) * size_t{128} + static_cast<uint8_t>(b)];
  }
  const Phrase* phrases = nullptr;
  const int16_t* next = nullptr;
  const int16_t* heads = nullptr;
};

template <typename Found>
void find_phrases(std::string_view text, size_t begin, size_t end, Found&& found) {
  const PhraseIndex& index = PhraseIndex::instance();
  for (size_t at = begin; at < end && at + 1 < text.size(); ++at) {
    for (int16_t i = index.first(text[at], text[at + 1]); i >= 0; i = index.next[i]) {
      const Phrase& phrase = index.phrases[i];
      if (text.compare(at, phrase.text.size(), phrase.text) == 0) found(phrase, at);
    }
  }
}

}  // namespace fragscope::diagnose
