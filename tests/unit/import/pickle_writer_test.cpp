// What the writer writes is what a pickle of these values is, byte by byte where it matters, and
// the restricted reader takes it.
#include "import/pickle_writer.h"

#include <sstream>

#include "tests/unit/import/pickle_maker.h"

using namespace fragscope;
using namespace fragscope::import_test;
using imported::PickleWriter;

namespace {

template <typename Write>
std::string written(Write&& write) {
  std::ostringstream out;
  PickleWriter pickle(out);
  write(pickle);
  pickle.finish();
  CHECK(pickle.good());
  return out.str();
}

std::string bytes(std::initializer_list<int> values) {
  std::string text = "\x80\x02";
  for (const int value : values) text += static_cast<char>(value);
  return text + ".";
}

std::string number(uint64_t value) {
  return written([&](PickleWriter& p) { p.number(value); });
}

}  // namespace

TEST_CASE("numbers have the narrowest form that keeps them unsigned") {
  CHECK(number(0) == bytes({'K', 0}));
  CHECK(number(255) == bytes({'K', 0xff}));
  CHECK(number(256) == bytes({'J', 0, 1, 0, 0}));
  CHECK(number(0x7fff'ffff) == bytes({'J', 0xff, 0xff, 0xff, 0x7f}));
  CHECK(number(0x8000'0000) == bytes({0x8a, 9, 0, 0, 0, 0x80, 0, 0, 0, 0, 0}));
  CHECK(number(UINT64_MAX) == bytes({0x8a, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0}));
}

TEST_CASE("signed numbers, reals, booleans, pairs") {
  CHECK(written([](PickleWriter& p) { p.number_signed(-1); }) ==
        bytes({0x8a, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}));
  CHECK(written([](PickleWriter& p) { p.number_signed(7); }) == bytes({'K', 7}));
  CHECK(written([](PickleWriter& p) { p.real(1.0); }) ==
        bytes({'G', 0x3f, 0xf0, 0, 0, 0, 0, 0, 0}));
  CHECK(written([](PickleWriter& p) { p.boolean(true); }) == bytes({0x88}));
  CHECK(written([](PickleWriter& p) { p.boolean(false); }) == bytes({0x89}));
  CHECK(written([](PickleWriter& p) { p.pair(1, 2); }) == bytes({'K', 1, 'K', 2, 0x86}));
}

TEST_CASE("a text, or what was memoized, is written once") {
  CHECK(written([](PickleWriter& p) {
          p.begin_list();
          p.text("ab");
          p.text("ab");
          p.boolean(true);
          const uint32_t memo = p.memoize();
          p.text("");
          p.recall(memo);
          p.end_list();
        }) ==
        bytes({']', '(', 'X', 2, 0,   0, 0, 'a', 'b', 'r', 0, 0, 0, 0, 'j', 0, 0, 0, 0, 0x88, 'r',
               1,   0,   0,   0, 'X', 0, 0, 0,   0,   'r', 2, 0, 0, 0, 'j', 1, 0, 0, 0, 'e'}));
}

TEST_CASE("the reader takes what the writer wrote") {
  const auto snapshot = read_bytes(written([](PickleWriter& p) {
    p.begin_dict();
    p.text("segments");
    p.begin_list();
    p.begin_dict();
    p.text("address");
    p.number(uint64_t{0xffff'8000'0000'0000});
    p.text("total_size");
    p.number(uint64_t{2097152});
    p.text("segment_type");
    p.text("large");
    p.text("segment_pool_id");
    p.pair(0, 3);
    p.text("blocks");
    p.begin_list();
    p.end_list();
    p.end_dict();
    p.end_list();
    p.text("device_traces");
    p.begin_list();
    p.end_list();
    p.end_dict();
  }));
  REQUIRE(snapshot.ok());
  REQUIRE(snapshot->parts.segments.size() == 1);
  CHECK(snapshot->parts.segments[0].address == 0xffff'8000'0000'0000);
  CHECK(snapshot->parts.segments[0].size == 2097152);
  CHECK(snapshot->parts.segments[0].type == imported::SegmentType::large);
  CHECK(snapshot->has_traces);
}

TEST_CASE("a stream that takes no more makes the writer say so") {
  std::ostringstream out;
  PickleWriter pickle(out);
  out.setstate(std::ios::badbit);
  pickle.text("x");
  CHECK_FALSE(pickle.good());
}
