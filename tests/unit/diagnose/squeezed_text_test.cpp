#include "diagnose/squeezed_text.h"

#include "tests/support/catch.h"

using namespace fragscope::diagnose;

namespace {

std::string squeeze(std::string_view raw, size_t piece = 1 << 20) {
  TextSqueezer squeezer;
  std::string out;
  while (!raw.empty()) {
    squeezer.feed(raw.substr(0, piece), out);
    raw.remove_prefix(std::min(piece, raw.size()));
  }
  squeezer.finish(out);
  return out;
}

}  // namespace

TEST_CASE("white space and capitals go, wherever lines break") {
  CHECK(squeeze("Tried to allocate 2.00 GiB") == "triedtoallocate2.00gib");
  CHECK(squeeze("Includ\ning non-Py\r\nTorch") == "includingnon-pytorch");
  CHECK(squeeze("a\\nb\\\\nc\\t\\\"d") == "abc\"d");
}

TEST_CASE("colours and markup go") {
  CHECK(squeeze("\x1b[31mCUDA\x1b[0m out") == "cudaout");
  CHECK(squeeze("\\u001b[1;31mCUDA\\x1b[0m out\\033[0m.") == "cudaout.");
  CHECK(squeeze("**CUDA** `out`<br>of&nbsp;memory") == "cudaoutofmemory");
  CHECK(squeeze("> CUDA out\n> of memory") == "cudaoutofmemory");
}

TEST_CASE("log prefixes go, at the beginning of a line only") {
  CHECK(squeeze("[rank3]: RuntimeError: x") == "runtimeerror:x");
  CHECK(squeeze("2031-05-07T11:22:33.456Z free") == "free");
  CHECK(squeeze("2031-05-07 11:22:33,456 ERROR free") == "free");
  CHECK(squeeze("(Worker pid=77) ERROR 05-07 11:22:33 [core.py:396] free") == "free");
  CHECK(squeeze("ERROR 05-07 11:22:33 engine.py:366] free") == "free");
  CHECK(squeeze("trainer-1  | 3: free") == "free");
  CHECK(squeeze("memory [rank3]: 7") == "memory[rank3]:7");
  CHECK(squeeze("(GPU 0; 4.00 GiB") == "(gpu0;4.00gib");
  CHECK(squeeze("44.47 GiB memory") == "44.47gibmemory");
}

TEST_CASE("any bytes in pieces of any size give the same text") {
  constexpr char kRaw[] = "a\0b\xff\xfe\n(W pid=1) c\xc3\xa9 \x1b[3";
  std::string raw(kRaw, sizeof kRaw - 1);
  raw += std::string(10000, 'x') + " y\n";
  const std::string whole = squeeze(raw);
  CHECK(whole.substr(0, 3) == "abc");
  CHECK(whole.size() > 10000);
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}})
    CHECK(squeeze(raw, piece) == whole);
}
