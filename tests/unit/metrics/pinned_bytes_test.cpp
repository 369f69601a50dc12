#include "metrics/pinned_bytes.h"

#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::metrics;

namespace {

Event call(EventKind kind, uint64_t seq, uint64_t address, uint64_t size, uint32_t stack) {
  Event event;
  event.kind = kind;
  event.seq = seq;
  event.address = address;
  event.size = size;
  event.stack = stack;
  event.device = 0;
  return event;
}

replay::ProcessFacts facts_with(std::unordered_set<uint32_t> torch_stacks) {
  replay::ProcessFacts facts;
  facts.torch_cuda_stacks = std::move(torch_stacks);
  return facts;
}

}  // namespace

TEST_CASE("who held pinned memory at the peak and at the end, by stack") {
  const replay::ProcessFacts facts = facts_with({});
  PinnedBytes pinned(facts);
  pinned.feed(call(EventKind::pinned_alloc, 1, 0x1000, 100, 1));
  pinned.feed(call(EventKind::pinned_alloc, 2, 0x2000, 300, 2));
  pinned.feed(call(EventKind::pinned_register, 3, 0x3000, 200, 1));  // the peak: 600
  pinned.feed(call(EventKind::pinned_free, 4, 0x2000, kUnknown, 0));
  pinned.feed(call(EventKind::pinned_alloc, 5, 0x4000, 50, 3));  // held at the end alone
  const auto holders = pinned.holders();
  REQUIRE(holders.size() == 3);
  CHECK(holders[0].stack == 1);
  CHECK(holders[0].peak_bytes == 300);
  CHECK(holders[0].peak_count == 2);
  CHECK(holders[0].final_bytes == 300);
  CHECK(holders[0].last_seq == 3);
  CHECK(holders[1].stack == 2);
  CHECK(holders[1].peak_bytes == 300);
  CHECK(holders[1].final_bytes == 0);
  CHECK(holders[2].stack == 3);
  CHECK(holders[2].peak_bytes == 0);
  CHECK(holders[2].final_bytes == 50);
}

TEST_CASE("a later, higher peak takes the place of an earlier one, an equal one does not") {
  const replay::ProcessFacts facts = facts_with({});
  PinnedBytes pinned(facts);
  pinned.feed(call(EventKind::pinned_alloc, 1, 0x1000, 100, 1));
  pinned.feed(call(EventKind::pinned_free, 2, 0x1000, kUnknown, 0));
  pinned.feed(call(EventKind::pinned_alloc, 3, 0x1000, 100, 2));
  pinned.feed(call(EventKind::pinned_free, 4, 0x1000, kUnknown, 0));
  REQUIRE(pinned.holders().size() == 1);
  CHECK(pinned.holders()[0].stack == 1);
  pinned.feed(call(EventKind::pinned_alloc, 5, 0x1000, 101, 3));
  CHECK(pinned.holders()[0].stack == 3);
  CHECK(pinned.holders()[0].peak_bytes == 101);
}

TEST_CASE("PyTorch's host allocator: powers of two that its library asks CUDA for") {
  const replay::ProcessFacts facts = facts_with({7});
  PinnedBytes pinned(facts);
  pinned.feed(call(EventKind::pinned_alloc, 1, 0x10000, 4096, 7));
  pinned.feed(call(EventKind::pinned_alloc, 2, 0x20000, 1, 7));
  pinned.feed(call(EventKind::pinned_alloc, 3, 0x30000, 5000, 7));  // no block of its
  pinned.feed(call(EventKind::pinned_alloc, 4, 0x40000, 8192, 8));  // somebody else's
  REQUIRE(pinned.torch_host());
  CHECK(pinned.torch_host()->held.current() == 4097);
  CHECK(pinned.torch_host()->most_padding.current() == 2047);  // 2049 bytes make a block of 4096
  pinned.feed(call(EventKind::pinned_free, 5, 0x10000, kUnknown, 0));
  CHECK(pinned.torch_host()->held.current() == 1);
  CHECK(pinned.torch_host()->most_padding.current() == 0);
  CHECK(pinned.torch_host()->held.peak() == 4097);
  CHECK(pinned.holders()[0].stack == 7);
  CHECK(pinned.holders()[0].torch_host == false);  // its newest call was not the allocator's
}

TEST_CASE("releases whose rounding can be limited have blocks of any size") {
  replay::ProcessFacts facts = facts_with({7});
  facts.properties["torch_version"] = "2.13.0";
  PinnedBytes pinned(facts);
  pinned.feed(call(EventKind::pinned_alloc, 1, 0x30000, 5000, 7));
  CHECK(pinned.torch_host()->held.current() == 5000);
  CHECK(pinned.torch_host()->most_padding.current() == 0);
}

TEST_CASE("without native stacks nobody knows whose pinned memory is") {
  const replay::ProcessFacts facts;
  PinnedBytes pinned(facts);
  pinned.feed(call(EventKind::pinned_alloc, 1, 0x10000, 4096, 7));
  CHECK_FALSE(pinned.torch_host());
  CHECK(pinned.gauge().current() == 4096);
}
