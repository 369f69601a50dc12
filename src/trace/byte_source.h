// Where the bytes of a trace come from: a file, read piece by piece with pread (a file that shrinks
// is a short read and never a signal), or memory. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace fragscope::trace {

class ByteSource {
 public:
  // Regular files only: a FIFO or device is kForeign, and is not waited for.
  static Result<ByteSource> open_file(const std::string& path);
  static ByteSource of_bytes(std::vector<std::byte> bytes);

  ByteSource(ByteSource&& other) noexcept;
  ByteSource& operator=(ByteSource&& other) noexcept;
  ~ByteSource();

  uint64_t size() const { return size_; }  // when it was opened

  // `count` bytes from `offset`, fewer at the end or on an error of the disk. Valid until the next
  // call.
  std::span<const std::byte> read(uint64_t offset, uint64_t count);

 private:
  ByteSource() = default;

  int fd_ = -1;
  uint64_t size_ = 0;
  std::vector<std::byte> bytes_;  // all of it (memory) or the last piece (file)
};

}  // namespace fragscope::trace
