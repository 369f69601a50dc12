// zstd frames. The one user of zstd: it decodes at about 1 GB/s, so that reading a trace is not
// bound by it, and halves what LZ4 leaves of columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fragscope::trace {

// Level 3. Empty only when the library ran out of memory.
std::vector<std::byte> compress(std::span<const std::byte> raw);

// False unless `stored` is exactly one frame of exactly `raw_bytes` bytes; the caller has bounded
// raw_bytes. `raw` is resized to it and reused between calls.
bool decompress(std::span<const std::byte> stored, uint64_t raw_bytes, std::vector<std::byte>& raw);

}  // namespace fragscope::trace
