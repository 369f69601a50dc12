#include "diagnose/quantity.h"

#include "base/bytes.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::diagnose;

namespace {

uint64_t bytes_after(std::string_view text) {
  const auto found = quantity_after(text, 0, Unit::kRequired);
  return found ? found->value.bytes : UINT64_MAX;
}

}  // namespace

TEST_CASE("a printed size is an interval of half a last digit") {
  const auto found = quantity_after("9.60gib;", 0, Unit::kRequired);
  REQUIRE(found);
  CHECK(found->end == 7);
  CHECK(found->value.bytes == 10307921510);  // 9.6 · 2^30 = 10307921510.4
  CHECK(found->value.low == 10302552801);    // 9.595 · 2^30 = 10302552801.28
  CHECK(found->value.high == 10313290220);   // 9.605 · 2^30 = 10313290219.52
}

TEST_CASE("whole bytes are exact") {
  const auto found = quantity_after("1024bytes", 0, Unit::kRequired);
  REQUIRE(found);
  CHECK(found->value.low == 1024);
  CHECK(found->value.high == 1024);
  CHECK(bytes_after("0bytesisfree") == 0);
}

TEST_CASE("units are binary, whatever they are called") {
  CHECK(bytes_after("2.00gib") == 2 * kGiB);
  CHECK(bytes_after("2.00gb") == 2 * kGiB);
  CHECK(bytes_after("2g;") == 2 * kGiB);
  CHECK(bytes_after("3.50mb") == 7 * kMiB / 2);
  CHECK(bytes_after("448.00kib") == 448 * kKiB);
  CHECK(bytes_after("1.00tib") == 1024 * kGiB);
  CHECK(bytes_after("77b") == 77);
  CHECK(bytes_after("2gofwhich") == 2 * kGiB);
  CHECK(quantity_after("7maxinuse:", 0, Unit::kOptional)->value.bytes == 7);
}

TEST_CASE("commas and dots: decimals or thousands") {
  CHECK(bytes_after("1,073,741,824bytes") == kGiB);
  CHECK(bytes_after("1.073.741.824bytes") == kGiB);
  CHECK(bytes_after("25,600bytes") == 25600);
  CHECK(bytes_after("2,50gib") == 5 * kGiB / 2);
  CHECK(bytes_after("1,024.00mib") == kGiB);
}

TEST_CASE("what is no complete size is refused") {
  for (const char* text : {"", "gib", ".5gib", "2.00gpu", "2.00", "x2.00gib", "2.gib"}) {
    INFO(text);
    CHECK_FALSE(quantity_after(text, 0, Unit::kRequired));
  }
  // Without a unit a number at the very end may be the head of a longer one.
  CHECK(quantity_after("58982400,", 0, Unit::kOptional)->value.bytes == 58982400);
  CHECK_FALSE(quantity_after("58982400", 0, Unit::kOptional));
}

TEST_CASE("a size in front of a phrase ends exactly there") {
  const std::string_view text = "ofwhich48.25mibisfree.9.60gib";
  const auto free = quantity_before(text, 15);
  REQUIRE(free);
  CHECK(free->begin == 7);
  CHECK(free->value.bytes == 50593792);
  const auto allowed = quantity_before(text, text.size());
  REQUIRE(allowed);
  CHECK(allowed->begin == 22);
  CHECK(allowed->value.bytes == 10307921510);
  CHECK_FALSE(quantity_before(text, 14));
}

TEST_CASE("absurd sizes are no sizes") {
  const auto found = quantity_after("17179869184.00gib", 0, Unit::kRequired);
  REQUIRE(found);
  CHECK(found->value.is_sentinel());
  CHECK(
      quantity_after("99999999999999999999999999999tib", 0, Unit::kRequired)->value.is_sentinel());
  CHECK_FALSE(Quantity::exact(256 * kGiB).is_sentinel());
}

TEST_CASE("fractions and whole numbers") {
  CHECK(fraction_after("(0.25)", 0) == 0.25);
  CHECK(fraction_after("=.9", 0) == 0.9);
  CHECK(fraction_after(":1", 0) == 1.0);
  CHECK_FALSE(fraction_after("(1.5)", 0));
  CHECK_FALSE(fraction_after("(x)", 0));
  CHECK(integer_after("7;", 0) == 7U);
  CHECK_FALSE(integer_after("99999999999999999999", 0));
  CHECK(integer_before("gpu12", 5) == 12U);
  CHECK_FALSE(integer_before("gpu", 3));
}
