#include "base/bytes.h"

#include "tests/support/catch.h"

using namespace fragscope;

TEST_CASE("sizes: binary suffixes, fractions and plain bytes") {
  CHECK(parse_size("20971520").value() == 20971520);
  CHECK(parse_size("0").value() == 0);
  CHECK(parse_size("12GiB").value() == 12 * kGiB);
  CHECK(parse_size("12g").value() == 12 * kGiB);
  CHECK(parse_size("512M").value() == 512 * kMiB);
  CHECK(parse_size("512 MB").value() == 512 * kMiB);
  CHECK(parse_size("1.5KiB").value() == 1536);
  CHECK(parse_size("18446744073709551615").value() == UINT64_MAX);
}

TEST_CASE("sizes: what is no size is refused with the text quoted") {
  for (const char* text : {"", "x", "12Q", "-1", "1.5", "1e3", "GiB", ".5G", "1..5G", "12GiBB",
                           "18446744073709551616", "99999999999999T"}) {
    const auto size = parse_size(text);
    REQUIRE_FALSE(size.ok());
    CHECK(size.error().code == ErrorCode::kInvalidArgument);
    CHECK(size.error().text.find("'" + std::string(text) + "'") != std::string::npos);
  }
}

TEST_CASE("sizes print as PyTorch prints them") {
  CHECK(format_size(0) == "0 bytes");
  CHECK(format_size(1024) == "1024 bytes");
  CHECK(format_size(kMiB) == "1024.00 KiB");
  CHECK(format_size(kGiB) == "1024.00 MiB");
  CHECK(format_size(98 * kMiB) == "98.00 MiB");
  CHECK(format_size(12 * kGiB) == "12.00 GiB");
}

TEST_CASE("rounding") {
  CHECK(round_up(0, 512) == 0);
  CHECK(round_up(1, 512) == 512);
  CHECK(round_up(512, 512) == 512);
  CHECK(round_up(7, 3) == 9);
  CHECK(round_down(7, 3) == 6);
}
