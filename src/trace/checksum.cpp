#include "trace/checksum.h"

#define XXH_INLINE_ALL  // header-only: no shared library to find on the target machine
#include <xxhash.h>

namespace fragscope::trace {

uint64_t checksum(std::span<const std::byte> bytes) { return XXH64(bytes.data(), bytes.size(), 0); }

}  // namespace fragscope::trace
