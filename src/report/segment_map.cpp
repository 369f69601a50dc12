#include "report/segment_map.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/bytes.h"

namespace fragscope::report {
namespace {

using metrics::BlockState;
using metrics::Layout;
using metrics::LayoutBlock;
using metrics::LayoutSegment;

enum Cell : uint8_t { kLive, kPending, kFree, kSliver, kCells };

constexpr std::array<std::string_view, kCells> kUtf8 = {"█", "▓", "░", "▏"};
constexpr std::array<std::string_view, kCells> kAscii = {"#", "+", ".", ":"};
constexpr std::array<std::string_view, kCells> kColor = {"\x1b[36m", "\x1b[33m", "\x1b[90m",
                                                         "\x1b[36m"};
constexpr std::string_view kColorOff = "\x1b[0m";
constexpr size_t kTextColumns = 48;  // address, size and share of a row, with their spaces
constexpr size_t kMinWidth = 60;

// Bytes of [from, to) of the segment in each state.
struct Mix {
  uint64_t live = 0;
  uint64_t pending = 0;
  uint64_t free = 0;
};

Cell cell_of(const Mix& mix) {
  if (mix.live + mix.pending == 0) return kFree;
  if (mix.free > mix.live + mix.pending) return kSliver;
  return mix.live >= mix.pending ? kLive : kPending;
}

void add_to_mix(Mix& mix, BlockState state, uint64_t bytes) {
  switch (state) {
    case BlockState::active_allocated:
      mix.live += bytes;
      return;
    case BlockState::active_pending_free:
      mix.pending += bytes;
      return;
    case BlockState::inactive:
      mix.free += bytes;
      return;
  }
}

// size * numerator / denominator without overflow for device-sized values.
uint64_t scaled(uint64_t size, size_t numerator, size_t denominator) {
  return static_cast<uint64_t>(static_cast<long double>(size) *
                               static_cast<long double>(numerator) /
                               static_cast<long double>(denominator));
}

std::vector<Cell> cells_of(const LayoutSegment& segment, size_t columns) {
  std::vector<Cell> cells(columns, kFree);
  size_t first = 0;  // first block that may still overlap the column
  for (size_t column = 0; column < columns; ++column) {
    const uint64_t from = segment.address + scaled(segment.size, column, columns);
    const uint64_t to = segment.address + scaled(segment.size, column + 1, columns);
    Mix mix;
    for (size_t i = first; i < segment.blocks.size(); ++i) {
      const LayoutBlock& block = segment.blocks[i];
      if (block.address >= to) break;
      const uint64_t end = block.address + block.size;
      if (end <= from) {
        first = i + 1;
        continue;
      }
      add_to_mix(mix, block.state, std::min(end, to) - std::max(block.address, from));
    }
    cells[column] = cell_of(mix);
  }
  return cells;
}

std::string draw(const std::vector<Cell>& cells, const SegmentMapStyle& style) {
  std::string out;
  Cell colored = kCells;
  for (const Cell cell : cells) {
    if (style.color && (colored == kCells || kColor[cell] != kColor[colored])) {
      out += kColor[cell];
      colored = cell;
    }
    out += style.utf8 ? kUtf8[cell] : kAscii[cell];
  }
  if (style.color && !cells.empty()) out += kColorOff;
  return out;
}

std::string row_of(const LayoutSegment& segment, uint64_t largest, const SegmentMapStyle& style) {
  const size_t room = std::max(style.width, kMinWidth) - kTextColumns;
  size_t columns = room;
  if (style.to_scale && largest > 0) {
    columns = std::max<size_t>(1, scaled(room, static_cast<size_t>(segment.size >> 9),
                                         static_cast<size_t>(largest >> 9 ? largest >> 9 : 1)));
    columns = std::min(columns, room);
  }
  const double share = segment.size == 0 ? 0.0
                                         : 100.0 * static_cast<double>(segment.active_bytes()) /
                                               static_cast<double>(segment.size);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "0x%012llx %12s  ",
                static_cast<unsigned long long>(segment.address),
                format_size(segment.size).c_str());
  std::array<char, 32> tail{};
  std::snprintf(tail.data(), tail.size(), "  %5.1f %% active\n", share);
  return text.data() + draw(cells_of(segment, columns), style) + std::string(room - columns, ' ') +
         tail.data();
}

// Free bytes that something live keeps from being given back.
uint64_t stuck_bytes(const LayoutSegment& segment) {
  return segment.active_bytes() == 0 ? 0 : segment.inactive_bytes();
}

// The segments to draw, in address order: those with most stuck bytes, then idle ones, then the
// largest, ties to the lower address. They are what a picture of fragmentation is about.
std::vector<const LayoutSegment*> chosen(const Layout& layout, size_t max_rows) {
  std::vector<const LayoutSegment*> rows;
  rows.reserve(layout.size());
  for (const LayoutSegment& segment : layout) rows.push_back(&segment);
  if (rows.size() <= max_rows) return rows;
  std::stable_sort(rows.begin(), rows.end(), [](const auto* left, const auto* right) {
    return std::tuple(stuck_bytes(*left), left->inactive_bytes(), left->size) >
           std::tuple(stuck_bytes(*right), right->inactive_bytes(), right->size);
  });
  rows.resize(max_rows);
  std::sort(rows.begin(), rows.end(),
            [](const auto* left, const auto* right) { return left->address < right->address; });
  return rows;
}

}  // namespace

std::string render_segment_map(const Layout& layout, const SegmentMapStyle& style) {
  if (layout.empty()) return "(no segments)\n";
  uint64_t largest = 0;
  uint64_t total = 0;
  for (const LayoutSegment& segment : layout) {
    largest = std::max(largest, segment.size);
    total += segment.size;
  }
  std::string out;
  uint64_t drawn = 0;
  const auto rows = chosen(layout, std::max<size_t>(1, style.max_rows));
  for (const LayoutSegment* segment : rows) {
    out += row_of(*segment, largest, style);
    drawn += segment->size;
  }
  if (rows.size() < layout.size()) {
    out += "… and " + std::to_string(layout.size() - rows.size()) + " more segments, together " +
           format_size(total - drawn) + "\n";
  }
  return out;
}

}  // namespace fragscope::report
