#include "simcuda/overlay.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace fragscope::simcuda {

void Overlay::clear() {
  ranges_.clear();
  stored_ = 0;
}

void Overlay::erase(uint64_t address, uint64_t bytes) {
  const uint64_t end = address + bytes;
  auto range = ranges_.lower_bound(address);
  if (range != ranges_.begin()) --range;
  while (range != ranges_.end() && range->first < end) {
    const uint64_t begin = range->first;
    const uint64_t stop = begin + range->second.size();
    if (stop <= address) {
      ++range;
      continue;
    }
    std::vector<std::byte> old = std::move(range->second);
    stored_ -= old.size();
    range = ranges_.erase(range);
    if (begin < address) {
      const auto kept = static_cast<std::ptrdiff_t>(address - begin);
      ranges_.emplace(begin, std::vector<std::byte>(old.begin(), old.begin() + kept));
      stored_ += address - begin;
    }
    if (stop > end) {
      const auto cut = static_cast<std::ptrdiff_t>(end - begin);
      ranges_.emplace(end, std::vector<std::byte>(old.begin() + cut, old.end()));
      stored_ += stop - end;
    }
  }
}

void Overlay::write(uint64_t address, const void* from, size_t bytes) {
  erase(address, bytes);
  if (bytes == 0 || bytes > kLargestWrite) return;
  if (stored_ + bytes > kCapacity) clear();
  const auto* raw = static_cast<const std::byte*>(from);
  ranges_.emplace(address, std::vector<std::byte>(raw, raw + bytes));
  stored_ += bytes;
}

void Overlay::fill(uint64_t address, unsigned value, size_t value_bytes, size_t count) {
  if (count > kLargestWrite / value_bytes) {
    erase(address, count * value_bytes);
    return;
  }
  std::vector<std::byte> raw(count * value_bytes);
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(raw.data() + i * value_bytes, &value, value_bytes);  // little-endian hosts only
  }
  write(address, raw.data(), raw.size());
}

bool Overlay::copy(uint64_t to, uint64_t from, size_t bytes) {
  std::vector<std::byte> raw(bytes <= kLargestWrite ? bytes : 0);
  if (bytes <= kLargestWrite && read(from, raw.data(), bytes)) {
    write(to, raw.data(), bytes);
    return true;
  }
  erase(to, bytes);
  return false;
}

bool Overlay::read(uint64_t address, void* to, size_t bytes) const {
  std::memset(to, 0, bytes);
  bool any = false;
  const uint64_t end = address + bytes;
  auto range = ranges_.lower_bound(address);
  if (range != ranges_.begin()) --range;
  for (; range != ranges_.end() && range->first < end; ++range) {
    const uint64_t from = std::max(range->first, address);
    const uint64_t until = std::min(range->first + range->second.size(), end);
    if (from >= until) continue;
    std::memcpy(static_cast<std::byte*>(to) + (from - address),
                range->second.data() + (from - range->first), until - from);
    any = true;
  }
  return any;
}

}  // namespace fragscope::simcuda
