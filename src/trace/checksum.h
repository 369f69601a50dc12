// XXH64 with seed 0. The one user of xxhash: a 64-bit checksum that costs a small part of the
// decompression beside it (CRC-32 would be slower and weaker), from a well-kept library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fragscope::trace {

uint64_t checksum(std::span<const std::byte> bytes);

}  // namespace fragscope::trace
