// Segments as a picture in the terminal: one row per segment, each character a stretch of it.
//
//   0x200000000000    20.00 MiB  ███████░░░▓▓░░░░░░░░  55.0 % active
//
// A character stands for size/width bytes and shows what takes most of them: █ allocated,
// ▓ freed but pending, ░ inactive (free). In ASCII: #, +, '.'. A live block never disappears: a
// stretch that holds any live byte but is mostly free is ▏ (ASCII ':').
#pragma once

#include <cstddef>
#include <string>

#include "metrics/layout.h"

namespace fragscope::report {

struct SegmentMapStyle {
  size_t width = 100;    // columns of a whole line, at least 60; text and picture share them
  size_t max_rows = 40;  // those with most free bytes that something pins, then idle ones;
                         // the rest is summed up in one line
  bool color = false;    // ANSI colours: only for a terminal
  bool utf8 = true;
  bool to_scale = true;  // bar length in proportion to the largest segment
};

// Lines end in '\n'. An empty layout gives one line that says so.
std::string render_segment_map(const metrics::Layout& layout, const SegmentMapStyle& style);

}  // namespace fragscope::report
