// Two recordings of one command, compared: lists written out by hand.
#include "diagnose/twin.h"

#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::diagnose;
using replay::Call;
using replay::CallKind;
using replay::CallList;

namespace {

// Two requests on two streams; `first` and `second` are handles of the streams.
CallList list_of(uint64_t first, uint64_t second, uint64_t bytes) {
  CallList list;
  list.origins = {{first, {}}, {second, {}}};
  list.calls = {
      {4096, 0, 0, CallKind::alloc}, {bytes, 1, 1, CallKind::alloc}, {0, 0, 0, CallKind::free}};
  list.seqs = {10, 20, 30};
  return list;
}

}  // namespace

TEST_CASE("handles of streams do not matter, their pattern does") {
  CHECK(compare_requests(list_of(0, 7, 512), list_of(3, 9, 512)).all_equal());
  const auto one_stream = compare_requests(list_of(0, 7, 512), list_of(3, 3, 512));
  REQUIRE(one_stream.first);
  CHECK(one_stream.equal == 1);
  CHECK(one_stream.first->real == "alloc 512 (block 1), stream 1");
  CHECK(one_stream.first->twin == "alloc 512 (block 1)");
}

TEST_CASE("the first request that differs is named with its events") {
  const auto result = compare_requests(list_of(0, 7, 512), list_of(0, 7, 1024));
  REQUIRE(result.first);
  CHECK(result.equal == 1);
  CHECK(result.first->real == "alloc 512 (block 1), stream 1");
  CHECK(result.first->twin == "alloc 1024 (block 1), stream 1");
  CHECK(result.first->real_seq == 20u);
  CHECK(result.first->twin_seq == 20u);
}

TEST_CASE("a run that goes on is not equal to one that ended") {
  CallList cut = list_of(0, 7, 512);
  cut.calls.pop_back();
  const auto result = compare_requests(list_of(0, 7, 512), cut);
  REQUIRE(result.first);
  CHECK(result.equal == 2);
  CHECK(result.first->real == "free (block 0)");
  CHECK(result.first->twin == "nothing");
  CHECK_FALSE(result.first->twin_seq);
}

TEST_CASE("exact figures must be equal, assumed ones need not") {
  metrics::DeviceMetrics real;
  real.heap.emplace();
  real.heap->reserved.peak = 2 << 20;
  real.driver.peak = 10 << 20;
  metrics::DeviceMetrics twin = real;
  twin.driver.peak = 4 << 20;
  const TwinComparison assumed = compare_twins({nullptr, &real}, {nullptr, &twin});
  CHECK(assumed.equal());
  bool told = false;
  for (const TwinFigure& figure : assumed.figures) {
    if (std::string(figure.name) != "beside the allocator") continue;
    told = figure.real == (8u << 20) && figure.twin == (2u << 20);
  }
  CHECK(told);
  twin.heap->reserved.peak = 4 << 20;
  CHECK_FALSE(compare_twins({nullptr, &real}, {nullptr, &twin}).equal());
  // A run without the device at all.
  CHECK_FALSE(compare_twins({nullptr, &real}, {nullptr, nullptr}).equal());
}
