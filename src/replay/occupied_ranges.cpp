#include "replay/occupied_ranges.h"

#include <algorithm>
#include <bit>

namespace fragscope::replay {

OccupiedRanges::OccupiedRanges(uint32_t end)
    : leaves_(std::bit_ceil(std::max(end, 1u))), nodes_(size_t{2} * leaves_) {}

void OccupiedRanges::clear() {
  for (Node& node : nodes_) {
    node.all_along.clear();
    node.sometimes.clear();
  }
}

uint64_t OccupiedRanges::place(uint32_t from, uint32_t to, uint64_t size) {
  collect(from, to);
  const uint64_t address = lowest_gap(size);
  take(from, to, {address, address + size});
  return address;
}

// Everything that is taken at some time of [from, to).
void OccupiedRanges::collect(uint32_t from, uint32_t to) {
  found_.clear();
  const auto append = [this](const Ranges& ranges) {
    found_.insert(found_.end(), ranges.begin(), ranges.end());
  };
  const auto both = [&](const Node& node) {
    append(node.all_along);
    append(node.sometimes);
  };
  uint32_t low = from + leaves_;
  uint32_t high = to + leaves_;
  // Nodes above the ends cover a part of the time.
  for (uint32_t node = low / 2; node > 0; node /= 2) append(nodes_[node].all_along);
  for (uint32_t a = low / 2, b = (high - 1) / 2; b > 0; a /= 2, b /= 2) {
    if (a != b) append(nodes_[b].all_along);
  }
  for (; low < high; low /= 2, high /= 2) {
    if (low % 2 == 1) both(nodes_[low++]);
    if (high % 2 == 1) both(nodes_[--high]);
  }
}

void OccupiedRanges::take(uint32_t from, uint32_t to, Range range) {
  uint32_t low = from + leaves_;
  uint32_t high = to + leaves_;
  for (uint32_t a = low / 2, b = (high - 1) / 2; b > 0; a /= 2, b /= 2) {
    add(nodes_[a].sometimes, range);
    if (a != b) add(nodes_[b].sometimes, range);
  }
  for (; low < high; low /= 2, high /= 2) {
    if (low % 2 == 1) add(nodes_[low++].all_along, range);
    if (high % 2 == 1) add(nodes_[--high].all_along, range);
  }
}

uint64_t OccupiedRanges::lowest_gap(uint64_t size) {
  std::sort(found_.begin(), found_.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  uint64_t free_from = 0;
  for (const Range& range : found_) {
    if (range.begin > free_from && range.begin - free_from >= size) break;
    free_from = std::max(free_from, range.end);
  }
  return free_from;
}

void OccupiedRanges::add(Ranges& ranges, Range range) {
  const auto first =
      std::lower_bound(ranges.begin(), ranges.end(), range.begin,
                       [](const Range& other, uint64_t begin) { return other.end < begin; });
  auto last = first;
  while (last != ranges.end() && last->begin <= range.end) {
    range.begin = std::min(range.begin, last->begin);
    range.end = std::max(range.end, last->end);
    ++last;
  }
  if (first == last) {
    ranges.insert(first, range);
  } else {
    *first = range;
    ranges.erase(first + 1, last);
  }
}

}  // namespace fragscope::replay
