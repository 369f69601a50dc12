#include "tools/demo/oom_message.h"

#include "base/bytes.h"
#include "tests/support/catch.h"

using namespace fragscope;

TEST_CASE("an out-of-memory message has PyTorch's words") {
  model::OomFacts facts;
  facts.segment = 98 * kMiB;
  facts.device_total = 12 * kGiB;
  facts.device_free = 52 * kMiB;
  facts.allocated = 7 * kGiB;
  facts.reserved = 11 * kGiB + 512 * kMiB;
  const std::string start =
      "CUDA out of memory. Tried to allocate 98.00 MiB. GPU 0 has a total capacity of 12.00 GiB of "
      "which 52.00 MiB is free. Of the allocated memory 7.00 GiB is allocated by PyTorch, and 4.50 "
      "GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try";
  CHECK(demo::oom_message(facts, 0).substr(0, start.size()) == start);
}

TEST_CASE("a memory fraction and private pools have clauses of their own") {
  model::OomFacts facts;
  facts.segment = 2 * kMiB;
  facts.device_total = 8 * kGiB;
  facts.allowed = 6 * kGiB;
  facts.allocated = 3 * kGiB;
  facts.private_free = 1536 * kMiB;
  facts.reserved = 6 * kGiB;
  const std::string text = demo::oom_message(facts, 1);
  const std::string start =
      "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 1 has a total capacity of 8.00 GiB of "
      "which 0 bytes is free. 6.00 GiB allowed; Of the allocated memory 4.50 GiB is allocated by "
      "PyTorch, with 1.50 GiB allocated in private pools (e.g., CUDA Graphs), and 1.50 GiB is "
      "reserved by PyTorch but unallocated. ";
  CHECK(text.substr(0, start.size()) == start);
}
