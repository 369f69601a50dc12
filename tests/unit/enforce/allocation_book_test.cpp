// src/enforce/allocation_book.h: the end of each allocation gives back exactly what it took.
#include "enforce/allocation_book.h"

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/catch.h"

using namespace fragscope::enforce;

namespace {

bool is_seven(const void*, uint64_t context) { return context == 7; }

struct Books {
  LocalAccount account;
  AllocationBook book{account};

  void begin(uint64_t address, uint64_t bytes, uint64_t context = kNoContext, int purse = 0) {
    account.add(purse, bytes);
    book.begin(address, {purse, bytes, context});
  }
  void free(uint64_t address) {
    if (const auto taken = book.take_out(address)) book.end_taken(*taken);
  }
  void create(uint64_t handle, uint64_t bytes) {
    account.add(0, bytes);
    book.begin_physical(handle, 0, bytes);
  }
  uint64_t used() { return account.used(0); }
};

}  // namespace

TEST_CASE("a free that fails keeps its memory, a second one gives back nothing") {
  Books books;
  books.begin(0x1000, 10);
  const auto taken = books.book.take_out(0x1000);
  REQUIRE(taken);
  CHECK_FALSE(books.book.take_out(0x1000));
  books.book.put_back(0x1000, *taken);
  CHECK(books.used() == 10);
  books.free(0x1000);
  books.free(0x1000);
  CHECK(books.used() == 0);
  CHECK(books.book.holdings() == 0);
}

TEST_CASE("an address that comes again while its free is under way is another allocation") {
  Books books;
  books.begin(0x1000, 10);
  const auto taken = books.book.take_out(0x1000);
  books.begin(0x1000, 30);
  books.book.end_taken(*taken);
  CHECK(books.used() == 30);
}

TEST_CASE("physical memory lives as long as a handle or a mapping") {
  Books books;
  books.create(1, 100);
  books.book.map(0x10000, 100, 1);
  books.book.release(books.book.physical_of(1));
  CHECK(books.used() == 100);
  CHECK(books.book.physical_of(1) == 0);
  books.book.unmap(0x10000, 100);
  CHECK(books.used() == 0);
}

TEST_CASE("a handle that is used again while the old memory is still mapped is other memory") {
  Books books;
  books.create(1, 100);
  books.book.map(0x10000, 100, 1);
  books.book.release(books.book.physical_of(1));
  books.create(1, 50);
  CHECK(books.used() == 150);
  books.book.unmap(0x10000, 100);
  CHECK(books.used() == 50);
  books.book.release(books.book.physical_of(1));
  CHECK(books.used() == 0);
}

TEST_CASE("a retained handle keeps the memory; an imported one counts nothing") {
  Books books;
  books.create(1, 100);
  books.book.map(0x10000, 100, 1);
  books.book.retain(2, 0x10010);
  books.book.release(books.book.physical_of(1));
  books.book.unmap(0x10000, 100);
  CHECK(books.used() == 0 + 100);
  books.book.begin_imported(3);
  books.book.release(books.book.physical_of(2));
  CHECK(books.used() == 0);
  books.book.release(books.book.physical_of(3));
  CHECK(books.used() == 0);
  CHECK(books.book.holdings() == 0);
}

TEST_CASE("one unmapping ends all mappings in its range") {
  Books books;
  books.create(1, 10);
  books.create(2, 10);
  books.book.map(0x1000, 0x1000, 1);
  books.book.map(0x2000, 0x1000, 2);
  books.book.release(books.book.physical_of(1));
  books.book.release(books.book.physical_of(2));
  books.book.unmap(0x1000, 0x2000);
  CHECK(books.used() == 0);
}

TEST_CASE("contexts and devices end what is theirs") {
  Books books;
  books.begin(0x1000, 1, 5);
  books.begin(0x2000, 2, 7);
  books.begin(0x3000, 4, kNoContext);
  books.create(1, 8);
  books.begin(0x4000, 16, 5, 1);
  books.book.end_context(9);
  CHECK(books.used() == 15);
  books.book.end_device(0, is_seven, nullptr);  // context 7 is the program's own
  CHECK(books.used() == 2);
  CHECK(books.account.used(1) == 16);
  books.book.end_context(7);
  CHECK(books.used() == 0);
}

TEST_CASE("whatever the order of calls, what is in use is the sum of what lives") {
  std::mt19937 random(1);
  Books books;
  std::vector<std::pair<uint64_t, uint64_t>> live;
  uint64_t sum = 0;
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t address = 0x1000 * (1 + random() % 300);
    const auto at = std::find_if(live.begin(), live.end(),
                                 [&](const auto& entry) { return entry.first == address; });
    if (random() % 2 == 0) {
      const uint64_t bytes = 1 + random() % 1000;
      if (at != live.end()) {  // its free was not seen
        sum -= at->second;
        live.erase(at);
      }
      books.begin(address, bytes);
      live.emplace_back(address, bytes);
      sum += bytes;
    } else {
      books.free(address);
      if (at != live.end()) {
        sum -= at->second;
        live.erase(at);
      }
    }
    REQUIRE(books.used() == sum);
  }
}
