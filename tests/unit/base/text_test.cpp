#include "base/text.h"

#include "tests/support/catch.h"

using fragscope::printable;

TEST_CASE("printable text stays as it is") {
  CHECK(printable("") == "");
  CHECK(printable("train.py --lr 1e-3") == "train.py --lr 1e-3");
  CHECK(printable("\u00e9 \u20ac \U0001f600") == "\u00e9 \u20ac \U0001f600");
}

TEST_CASE("control characters are named, also those of two bytes") {
  CHECK(printable("a\nb\x1b[2J\x7f") == "a\\x0ab\\x1b[2J\\x7f");
  CHECK(printable(std::string_view("\0", 1)) == "\\x00");
  CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");
}

TEST_CASE("what is not UTF-8 is named byte by byte") {
  CHECK(printable("\xff") == "\\xff");
  CHECK(printable("\xc3") == "\\xc3");           // cut
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");  // overlong
  CHECK(printable("\xe0\x80\xaf") == "\\xe0\\x80\\xaf");
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // a surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(printable("\xe2\x82z") == "\\xe2\\x82z");
}
