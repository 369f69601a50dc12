// Apart from the rest of bytes.h, which needs libm.
#include <cstdio>

#include "base/bytes.h"

namespace fragscope {

std::string format_size(uint64_t bytes) {
  char buffer[48];
  const auto value = static_cast<double>(bytes);
  if (bytes <= kKiB) {
    std::snprintf(buffer, sizeof buffer, "%llu bytes", static_cast<unsigned long long>(bytes));
  } else if (bytes <= kMiB) {
    std::snprintf(buffer, sizeof buffer, "%.2f KiB", value / static_cast<double>(kKiB));
  } else if (bytes <= kGiB) {
    std::snprintf(buffer, sizeof buffer, "%.2f MiB", value / static_cast<double>(kMiB));
  } else {
    std::snprintf(buffer, sizeof buffer, "%.2f GiB", value / static_cast<double>(kGiB));
  }
  return buffer;
}

}  // namespace fragscope
