#include "tools/vary.h"

#include "tests/support/catch.h"

using fragscope::tools::parse_variable;
using fragscope::tools::with_value;

TEST_CASE("vary: ranges and lists") {
  const auto range = parse_variable("BATCH=-1..2");
  REQUIRE(range);
  CHECK(range->name == "BATCH");
  CHECK(range->values == std::vector<std::string>{"-1", "0", "1", "2"});
  CHECK(parse_variable("M=small,large")->values == std::vector<std::string>{"small", "large"});
  CHECK(parse_variable("M=a=b")->values == std::vector<std::string>{"a=b"});
}

TEST_CASE("vary: what is neither is refused") {
  for (const char* text : {"", "BATCH", "=1", "B A=1", "B=", "B=1,", "B=,1", "B=1..", "B=..2",
                           "B=3..2", "B=1..x", "B=0..100000", "B={N}..2"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_variable(text));
  }
}

TEST_CASE("vary: every hole is filled, and values are not searched again") {
  const auto words = with_value({"run", "--a={N}", "{N}{N}", "{M}"}, "N", "{N}");
  REQUIRE(words);
  CHECK(*words == std::vector<std::string>{"run", "--a={N}", "{N}{N}", "{M}"});
  CHECK_FALSE(with_value({"run"}, "N", "1"));
}
