#include "report/segment_map.h"

#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::metrics;
using fragscope::report::render_segment_map;
using fragscope::report::SegmentMapStyle;

namespace {

constexpr uint64_t kMiB = 1 << 20;

LayoutBlock block(uint64_t address, uint64_t size, BlockState state) {
  LayoutBlock made;
  made.address = address;
  made.size = size;
  made.state = state;
  return made;
}

// 20 MiB: 10 allocated, 5 inactive, 5 pending; and 10 MiB wholly free but for one sliver.
Layout two_segments() {
  LayoutSegment first;
  first.address = 0x100000;
  first.size = 20 * kMiB;
  first.blocks = {block(0x100000, 10 * kMiB, BlockState::active_allocated),
                  block(0x100000 + 10 * kMiB, 5 * kMiB, BlockState::inactive),
                  block(0x100000 + 15 * kMiB, 5 * kMiB, BlockState::active_pending_free)};
  LayoutSegment second;
  second.address = 0x10000000;
  second.size = 10 * kMiB;
  second.blocks = {block(0x10000000, 512, BlockState::active_allocated),
                   block(0x10000000 + 512, 10 * kMiB - 512, BlockState::inactive)};
  return {first, second};
}

}  // namespace

TEST_CASE("a segment map shows live, pending and free stretches to scale") {
  SegmentMapStyle style;
  style.width = 68;  // 20 columns for the largest segment
  style.utf8 = false;
  CHECK(render_segment_map(two_segments(), style) ==
        "0x000000100000    20.00 MiB  ##########.....+++++   75.0 % active\n"
        "0x000010000000    10.00 MiB  :.........              0.0 % active\n");
}

TEST_CASE("a segment map without scale uses the whole width, in UTF-8 and colour") {
  SegmentMapStyle style;
  style.width = 58 + 10;
  style.to_scale = false;
  const Layout layout = {two_segments()[1]};
  const std::string plain = render_segment_map(layout, style);
  CHECK(plain.find("▏░░░░░░░░░░░░░░░░░░░  ") != std::string::npos);
  CHECK(plain.find('\x1b') == std::string::npos);
  style.color = true;
  CHECK(render_segment_map(layout, style).find("\x1b[36m▏\x1b[90m░") != std::string::npos);
}

TEST_CASE("a segment map draws what has most free bytes and sums up the rest") {
  SegmentMapStyle style;
  style.utf8 = false;
  style.max_rows = 1;
  const std::string text = render_segment_map(two_segments(), style);
  CHECK(text.find("0x000010000000") != std::string::npos);
  CHECK(text.find("0x000000100000") == std::string::npos);
  CHECK(text.find("and 1 more segments, together 20.00 MiB\n") != std::string::npos);
  CHECK(render_segment_map({}, style) == "(no segments)\n");
}

TEST_CASE("a segment map prefers pinned segments to idle ones, however large") {
  Layout layout = two_segments();
  LayoutSegment idle;
  idle.address = 0x20000000;
  idle.size = 100 * kMiB;
  idle.blocks = {block(idle.address, idle.size, BlockState::inactive)};
  layout.push_back(idle);
  SegmentMapStyle style;
  style.max_rows = 2;
  CHECK(render_segment_map(layout, style).find("0x000020000000") == std::string::npos);
}
