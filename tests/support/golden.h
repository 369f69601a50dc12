// Golden files below tests/golden. FRAGSCOPE_WRITE_GOLDEN=1 in the environment writes them anew;
// the diff is what a reviewer reads.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace fragscope::test {

inline std::string read_golden(const std::string& name) {
  std::ifstream in(std::string(FRAGSCOPE_TEST_DATA) + "/" + name, std::ios::binary);
  INFO("golden file " << name);
  REQUIRE(in.good());
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void check_golden(const std::string& name, const std::string& text) {
  if (std::getenv("FRAGSCOPE_WRITE_GOLDEN") != nullptr) {
    std::ofstream(std::string(FRAGSCOPE_TEST_DATA) + "/" + name, std::ios::binary) << text;
  }
  CHECK(text == read_golden(name));
}

// Lines of "offset: 16 bytes in hex"; lines of zeros only are left out.
inline std::string hex_dump(std::span<const std::byte> bytes) {
  static const char digits[] = "0123456789abcdef";
  std::string out;
  for (size_t start = 0; start < bytes.size(); start += 16) {
    std::string line;
    bool blank = true;
    for (size_t i = start; i < start + 16 && i < bytes.size(); ++i) {
      const auto byte = static_cast<unsigned>(bytes[i]);
      blank = blank && byte == 0;
      line += ' ';
      line += digits[byte >> 4];
      line += digits[byte & 15];
    }
    if (blank) continue;
    char offset[24];
    std::snprintf(offset, sizeof offset, "%06zx:", start);
    out += offset + line + "\n";
  }
  return out;
}

// The inverse; `size` bytes.
inline std::vector<std::byte> from_hex_dump(const std::string& text, size_t size) {
  std::vector<std::byte> bytes(size);
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    size_t offset = std::stoul(line, nullptr, 16);
    for (size_t column = line.find(':') + 2; column + 1 < line.size(); column += 3) {
      REQUIRE(offset < size);
      bytes[offset++] = static_cast<std::byte>(std::stoul(line.substr(column, 2), nullptr, 16));
    }
    at = end + 1;
  }
  return bytes;
}

}  // namespace fragscope::test
