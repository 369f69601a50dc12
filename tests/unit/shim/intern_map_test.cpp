#include "shim/intern_map.h"

#include <set>
#include <vector>

#include "tests/support/catch.h"

using fragscope::shim::InternMap;
using fragscope::shim::mix_hash;

TEST_CASE("a hash keeps its entry while the map grows from level to level") {
  InternMap map;
  REQUIRE(map.map(size_t{1} << 18));
  constexpr uint64_t kHashes = 60000;  // more than the first two levels take
  std::vector<InternMap::Entry*> entries;
  for (uint64_t i = 0; i < kHashes; ++i) {
    InternMap::Entry* const entry = map.entry(mix_hash(1, i) | 1);
    REQUIRE(entry != nullptr);
    REQUIRE(entry->id.load() == 0);  // of no other hash
    entry->id.store(static_cast<uint32_t>(i + 1));
    entries.push_back(entry);
  }
  for (uint64_t i = 0; i < kHashes; ++i) REQUIRE(map.entry(mix_hash(1, i) | 1) == entries[i]);
  CHECK(std::set(entries.begin(), entries.end()).size() == kHashes);
}

TEST_CASE("a full map has no entry for a new hash and keeps the others") {
  InternMap map;
  REQUIRE(map.map(size_t{1} << 12));
  InternMap::Entry* const first = map.entry(1);
  REQUIRE(first != nullptr);
  bool full = false;
  for (uint64_t i = 0; i < 5000 && !full; ++i) full = map.entry(mix_hash(2, i) | 1) == nullptr;
  CHECK(full);
  CHECK(map.entry(1) == first);
}

TEST_CASE("without address space there is no entry") {
  InternMap map;
  CHECK(map.entry(1) == nullptr);
}
