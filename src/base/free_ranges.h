// What is free of an address space. Pure; threads: callers lock.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace fragscope {

using FreeRanges = std::map<uint64_t, uint64_t>;  // address -> bytes, never adjacent

// [at, at + bytes), of which nothing is free, is free again and joins its neighbours.
inline void give_back(FreeRanges& ranges, uint64_t at, uint64_t bytes) {
  auto next = ranges.lower_bound(at);
  if (next != ranges.end() && next->first == at + bytes) {
    bytes += next->second;
    next = ranges.erase(next);
  }
  if (next != ranges.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == at) {
      before->second += bytes;
      return;
    }
  }
  ranges.emplace_hint(next, at, bytes);
}

}  // namespace fragscope
