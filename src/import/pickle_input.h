// The bytes of a pickle, front to back, through one window: a file of any size costs the window.
//
// Threads: one at a time. Errors: take() gives fewer bytes than asked at the end of the file; the
// caller says what was cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/byte_source.h"

namespace fragscope::imported {

class PickleInput {
 public:
  explicit PickleInput(trace::ByteSource source) : source_(std::move(source)) { fill(0, kWindow); }

  uint64_t size() const { return source_.size(); }
  uint64_t offset() const { return base_ + at_; }
  uint64_t remaining() const { return size() - offset(); }

  // A little-endian number; false at the end.
  template <typename T>
  bool read(T& value) {
    if (sizeof(T) > window_.size() - at_) {
      const auto bytes = take(sizeof(T));
      if (bytes.size() != sizeof(T)) return false;
      std::memcpy(&value, bytes.data(), sizeof(T));
      return true;
    }
    std::memcpy(&value, window_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }

  // `count` bytes, or none when fewer are left. Valid until the next call.
  std::span<const std::byte> take(uint64_t count) {
    if (count > window_.size() - at_ && !refill(count)) return {};
    const auto taken = window_.subspan(at_, count);
    at_ += count;
    return taken;
  }

 private:
  static constexpr uint64_t kWindow = 1 << 20;

  bool refill(uint64_t count) {
    if (count > remaining()) return false;
    fill(offset(), count > kWindow ? count : kWindow);
    return count <= window_.size();
  }

  void fill(uint64_t offset, uint64_t count) {
    base_ = offset;
    at_ = 0;
    window_ = source_.read(offset, count);
  }

  trace::ByteSource source_;
  std::span<const std::byte> window_;
  uint64_t base_ = 0;
  uint64_t at_ = 0;
};

}  // namespace fragscope::imported
