// Bounds-checked reading and growing writing of little-endian integers and LEB128 varints.
//
// ByteReader never reads past its span: after the first impossible read it stays failed, returns
// zeros, and `failed_at()` is the offset of that read. Callers check `ok()` once per record.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fragscope {

constexpr uint64_t zigzag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
constexpr int64_t unzigzag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool ok() const { return !failed_; }
  uint64_t offset() const { return at_; }
  uint64_t failed_at() const { return at_; }
  uint64_t remaining() const { return failed_ ? 0 : bytes_.size() - at_; }

  template <typename T>
  T fixed() {
    static_assert(std::is_integral_v<T>);
    T value{};
    if (!take(sizeof value)) return value;
    std::memcpy(&value, bytes_.data() + at_ - sizeof value, sizeof value);
    return value;
  }

  uint64_t varint() {
    if (!failed_ && at_ < bytes_.size() && static_cast<uint8_t>(bytes_[at_]) < 0x80) {
      return static_cast<uint64_t>(bytes_[at_++]);  // most are one byte
    }
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !failed_ && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<uint64_t>(bytes_[at_++]);
      if (shift == 63 && byte > 1) break;
      value |= (byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    failed_ = true;
    return 0;
  }

  int64_t signed_varint() { return unzigzag(varint()); }

  // `out[i]` = the sum of the first i + 1 of so many signed varints, modulo 2^64.
  void running_sums(std::span<uint64_t> out) {
    uint64_t sum = 0;
    size_t done = 0;
    // Where the longest varint cannot leave the span, no byte is checked.
    while (done < out.size() && bytes_.size() - at_ >= kLongestVarint && !failed_) {
      const std::byte* next = bytes_.data() + at_;
      auto byte = static_cast<uint64_t>(*next++);
      uint64_t value = byte & 0x7f;
      for (unsigned shift = 7; byte >= 0x80 && shift < 63; shift += 7) {
        byte = static_cast<uint64_t>(*next++);
        value |= (byte & 0x7f) << shift;
      }
      if (byte >= 0x80) break;  // ten bytes: the careful way
      at_ = static_cast<uint64_t>(next - bytes_.data());
      out[done++] = sum += static_cast<uint64_t>(unzigzag(value));
    }
    for (; done < out.size(); ++done) out[done] = sum += static_cast<uint64_t>(signed_varint());
  }

  std::span<const std::byte> bytes(uint64_t count) {
    if (!take(count)) return {};
    return bytes_.subspan(at_ - count, count);
  }

  // Length-prefixed text; longer than `limit` counts as damage.
  std::string text(uint64_t limit) {
    const uint64_t length = varint();
    if (length > limit) failed_ = true;
    const auto raw = bytes(failed_ ? 0 : length);
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }

 private:
  bool take(uint64_t count) {
    if (failed_ || count > bytes_.size() - at_) {
      failed_ = true;
      return false;
    }
    at_ += count;
    return true;
  }

  static constexpr size_t kLongestVarint = 10;
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
  bool failed_ = false;
};

class ByteWriter {
 public:
  template <typename T>
  void fixed(T value) {
    static_assert(std::is_integral_v<T>);
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof value);
  }

  void varint(uint64_t value) {
    while (value >= 0x80) {
      bytes_.push_back(static_cast<std::byte>(value | 0x80));
      value >>= 7;
    }
    bytes_.push_back(static_cast<std::byte>(value));
  }

  void signed_varint(int64_t value) { varint(zigzag(value)); }

  void bytes(std::span<const std::byte> raw) {
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }

  void text(std::string_view value) {
    varint(value.size());
    bytes({reinterpret_cast<const std::byte*>(value.data()), value.size()});
  }

  const std::vector<std::byte>& data() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  void clear() { bytes_.clear(); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace fragscope
