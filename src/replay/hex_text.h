// Addresses in sentences: "0x200000000000".
#pragma once

#include <cstdint>
#include <string>

namespace fragscope::replay {

inline std::string hex_text(uint64_t address) {
  std::string text;
  for (uint64_t rest = address; rest != 0 || text.empty(); rest >>= 4) {
    text.insert(text.begin(), "0123456789abcdef"[rest & 15]);
  }
  return "0x" + text;
}

}  // namespace fragscope::replay
