#include "trace/compression.h"

#include <zstd.h>

#include <memory>

namespace fragscope::trace {

std::vector<std::byte> compress(std::span<const std::byte> raw) {
  std::vector<std::byte> stored(ZSTD_compressBound(raw.size()));
  const size_t size = ZSTD_compress(stored.data(), stored.size(), raw.data(), raw.size(), 3);
  stored.resize(ZSTD_isError(size) != 0 ? 0 : size);
  return stored;
}

bool decompress(std::span<const std::byte> stored, uint64_t raw_bytes,
                std::vector<std::byte>& raw) {
  if (ZSTD_getFrameContentSize(stored.data(), stored.size()) != raw_bytes) return false;
  const size_t frame = ZSTD_findFrameCompressedSize(stored.data(), stored.size());
  if (ZSTD_isError(frame) != 0 || frame != stored.size()) return false;
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  thread_local const std::unique_ptr<ZSTD_DCtx, Free> context(ZSTD_createDCtx());
  if (!context) return false;
  raw.resize(raw_bytes);
  return ZSTD_decompressDCtx(context.get(), raw.data(), raw.size(), stored.data(), stored.size()) ==
         raw_bytes;
}

}  // namespace fragscope::trace
