// BlockTable: the map from addresses to allocated blocks, against a plain map.
#include <map>

#include "model/block.h"
#include "tests/support/catch.h"

using namespace fragscope::model;

TEST_CASE("a block table finds what is linked and nothing else") {
  BlockTable table;
  CHECK(table.find_allocated(512) == kNone);
  CHECK(table.take_allocated(512) == kNone);
  std::map<uint64_t, BlockIndex> plain;
  uint64_t state = 1;
  const auto random = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t address = 0x2000'0000'0000 + 512 * random(step < 10'000 ? 3000 : 300);
    const auto at = plain.find(address);
    REQUIRE(table.find_allocated(address) == (at == plain.end() ? kNone : at->second));
    if (at == plain.end()) {
      const BlockIndex index = table.create();
      CHECK(table[index].in_use);
      table[index].address = address;
      table.link_address(index);
      plain[address] = index;
    } else if (random(2) == 0) {
      table.unlink_address(at->second);
      table.destroy(at->second);
      CHECK_FALSE(table[at->second].in_use);
      plain.erase(at);
    } else {
      REQUIRE(table.take_allocated(address) == at->second);
      CHECK(table.take_allocated(address) == kNone);
      table.destroy(at->second);
      plain.erase(at);
    }
  }
  for (const auto& [address, index] : plain) CHECK(table.find_allocated(address) == index);
}

TEST_CASE("a slab entry that is used again is a new block") {
  BlockTable table;
  const BlockIndex first = table.create();
  CHECK(first == 0);
  CHECK(table.limit() == 1);
  table[first].size = 4096;
  table[first].has_uses = true;
  table.set_range(first, 3);
  table.destroy(first);
  const BlockIndex again = table.create();
  CHECK(again == first);
  CHECK(table.limit() == 1);
  CHECK(table[again].size == 0);
  CHECK_FALSE(table[again].has_uses);
  CHECK(table[again].mapped);
  CHECK(table.range(again) == kNone);
  CHECK(table.create() == 1);
}

TEST_CASE("what few blocks have takes memory once one of them has it, and is kept as blocks come") {
  BlockTable table;
  for (int i = 0; i < 40; ++i) table.create();
  const size_t plain = table.bytes();
  CHECK(table.range(39) == kNone);
  CHECK(table.gc_base(39) == 0);
  CHECK(table.events(39) == 0);
  CHECK(table.generation(39) == 0);
  table.set_range(5, kNone);
  CHECK(table.bytes() == plain);
  table.set_range(39, 7);
  CHECK(table.bytes() > plain);
  table.set_gc_base(38, 11);
  table.add_event(37);
  table.add_event(37);
  table.remove_event(37);
  table.end_wait(36);
  for (int i = 0; i < 2000; ++i) table.create();
  table.set_range(2039, 8);
  table.set_gc_base(2039, 12);
  table.add_event(2039);
  CHECK(table.range(39) == 7);
  CHECK(table.range(38) == kNone);
  CHECK(table.range(2039) == 8);
  CHECK(table.gc_base(38) == 11);
  CHECK(table.gc_base(37) == 0);
  CHECK(table.gc_base(2039) == 12);
  CHECK(table.events(37) == 1);
  CHECK(table.events(2039) == 1);
  CHECK(table.events(1000) == 0);
  CHECK(table.generation(36) == 1);
  CHECK(table.generation(37) == 0);
  table.set_range(39, kNone);
  CHECK(table.range(39) == kNone);
}

TEST_CASE("what few blocks have is counted, four bytes a block at least") {
  const auto grown_by = [](auto set) {
    BlockTable table;
    for (int i = 0; i < 1000; ++i) table.create();
    const size_t plain = table.bytes();
    set(table);
    return table.bytes() - plain;
  };
  const size_t ranges = grown_by([](BlockTable& table) { table.set_range(999, 7); });
  const size_t bases = grown_by([](BlockTable& table) { table.set_gc_base(999, 7); });
  const size_t waits = grown_by([](BlockTable& table) { table.add_event(999); });
  for (const size_t bytes : {ranges, bases, waits}) {
    CHECK(bytes >= 4000);
    CHECK(bytes < 32'000);
  }
}

TEST_CASE("a block takes less than 64 bytes, its place in the map of addresses included") {
  BlockTable table;
  for (const uint64_t count : {1'000u, 10'000u, 100'000u}) {
    for (uint64_t i = table.limit(); i < count; ++i) {
      const BlockIndex index = table.create();
      table[index].address = 512 * (i + 1);
      table[index].allocated = true;
      table.link_address(index);
    }
    CHECK(table.find_allocated(512 * count) == count - 1);
    CHECK(table.bytes() < 64 * count);
    CHECK(table.bytes() >= sizeof(Block) * count);
  }
}

TEST_CASE("the map of addresses does not grow with blocks that come and go") {
  BlockTable table;
  CHECK(table.find_allocated(512) == kNone);  // from now on there is a map
  size_t bytes = 0;
  for (int round = 0; round < 10'000; ++round) {
    const BlockIndex index = table.create();
    table[index].address = 512;
    table[index].allocated = true;
    table.link_address(index);
    if (round % 2 == 0) {
      table.unlink_address(index);
    } else {
      REQUIRE(table.take_allocated(512) == index);
    }
    table.destroy(index);
    if (round == 0) bytes = table.bytes();
  }
  CHECK(table.bytes() == bytes);
}

TEST_CASE("a block table that is asked for an address late knows the blocks of before") {
  BlockTable table;
  for (uint64_t i = 1; i <= 100; ++i) {
    const BlockIndex index = table.create();
    table[index].address = 512 * i;
    table[index].allocated = i % 3 != 0;
    if (table[index].allocated) table.link_address(index);
  }
  table.unlink_address(0);
  table[0].allocated = false;
  const size_t before = table.bytes();
  CHECK(table.find_allocated(512) == kNone);
  CHECK(table.bytes() >= before + 64 * sizeof(BlockIndex));
  for (uint64_t i = 2; i <= 100; ++i) {
    CHECK(table.find_allocated(512 * i) == (i % 3 != 0 ? i - 1 : kNone));
  }
}
