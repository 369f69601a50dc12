#include "model/device_memory.h"

#include <algorithm>
#include <iterator>

#include "base/bytes.h"
#include "base/free_ranges.h"

namespace fragscope::model {

namespace {

using Holes = FreeRanges;

// Takes [at, at + bytes) out of the hole that contains it.
void cut(Holes& holes, Holes::iterator hole, uint64_t at, uint64_t bytes) {
  const uint64_t begin = hole->first;
  const uint64_t end = begin + hole->second;
  if (at == begin) {
    holes.erase(hole);
  } else {
    hole->second = at - begin;
  }
  if (at + bytes < end) holes.emplace(at + bytes, end - (at + bytes));
}

// Lowest address that holds `bytes` at a multiple of `alignment`.
std::optional<uint64_t> take_lowest(Holes& holes, uint64_t bytes, uint64_t alignment) {
  for (auto hole = holes.begin(); hole != holes.end(); ++hole) {
    const uint64_t at = round_up(hole->first, alignment);
    const uint64_t end = hole->first + hole->second;
    if (at < end && end - at >= bytes) {
      cut(holes, hole, at, bytes);
      return at;
    }
  }
  return std::nullopt;
}

}  // namespace

bool LocalCapacity::charge(uint64_t bytes) {
  if (bytes > capacity_ - used_) return false;
  used_ += bytes;
  return true;
}

void LocalCapacity::refund(uint64_t bytes) { used_ -= std::min(bytes, used_); }

DeviceMemory::DeviceMemory(int ordinal, CapacityBook& book) : book_(book) {
  const uint64_t base = device_window(ordinal);
  page_holes_.emplace(base, kDeviceWindowBytes / 2);
  range_holes_.emplace(base + kDeviceWindowBytes / 2, kDeviceWindowBytes / 2);
}

// Charges first: address space is there in plenty, capacity is what runs out.
std::optional<uint64_t> DeviceMemory::take_pages(uint64_t bytes) {
  if (!book_.charge(bytes)) return std::nullopt;
  const auto address = take_lowest(page_holes_, bytes, kDevicePage);
  if (!address) {
    book_.refund(bytes);
    return std::nullopt;
  }
  charged_ += bytes;
  return address;
}

void DeviceMemory::return_pages(uint64_t address, uint64_t bytes) {
  give_back(page_holes_, address, bytes);
  book_.refund(bytes);
  charged_ -= bytes;
}

std::optional<uint64_t> DeviceMemory::allocate_small(uint64_t bytes) {
  for (auto& [page, content] : small_pages_) {
    if (const auto address = take_lowest(content.free, bytes, kDeviceAlignment)) {
      ++content.live;
      return address;
    }
  }
  const auto page = take_pages(kDevicePage);
  if (!page) return std::nullopt;
  SmallPage& content = small_pages_[*page];
  content.free.emplace(*page, kDevicePage);
  ++content.live;
  return take_lowest(content.free, bytes, kDeviceAlignment);
}

std::optional<uint64_t> DeviceMemory::allocate(uint64_t bytes) {
  if (bytes > kDeviceWindowBytes / 2) return std::nullopt;
  const auto address = bytes <= kSmallDeviceAllocation
                           ? allocate_small(round_up(bytes, kDeviceAlignment))
                           : take_pages(round_up(bytes, kDevicePage));
  if (address) allocations_.emplace(*address, bytes);
  return address;
}

std::optional<uint64_t> DeviceMemory::release(uint64_t address) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return std::nullopt;
  const uint64_t bytes = found->second;
  allocations_.erase(found);
  if (bytes > kSmallDeviceAllocation) {
    return_pages(address, round_up(bytes, kDevicePage));
    return bytes;
  }
  const uint64_t page = round_down(address, kDevicePage);
  const auto small = small_pages_.find(page);
  give_back(small->second.free, address, round_up(bytes, kDeviceAlignment));
  if (--small->second.live == 0) {
    small_pages_.erase(small);
    return_pages(page, kDevicePage);
  }
  return bytes;
}

std::optional<DeviceMemory::Allocation> DeviceMemory::find(uint64_t address) const {
  const auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return std::nullopt;
  const auto [begin, bytes] = *std::prev(after);
  if (address - begin >= bytes) return std::nullopt;
  return Allocation{begin, bytes};
}

std::optional<uint64_t> DeviceMemory::reserve_range(uint64_t bytes, uint64_t alignment) {
  const auto address = take_lowest(range_holes_, bytes, std::max(alignment, kDevicePage));
  if (address) ranges_.emplace(*address, bytes);
  return address;
}

bool DeviceMemory::release_range(uint64_t address) {
  const auto found = ranges_.find(address);
  if (found == ranges_.end()) return false;
  give_back(range_holes_, address, found->second);
  ranges_.erase(found);
  return true;
}

}  // namespace fragscope::model
