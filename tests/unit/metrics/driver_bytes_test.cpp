#include "metrics/driver_bytes.h"

#include "metrics/pinned_bytes.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::metrics;

namespace {

struct Feeder {
  DriverBytes driver;
  replay::ProcessFacts facts;
  PinnedBytes pinned{facts};
  uint64_t seq = 0;

  Event event(EventKind kind, uint64_t address, uint64_t size = kUnknown, int32_t device = 0) {
    Event made;
    made.kind = kind;
    made.address = address;
    made.size = size;
    made.device = device;
    made.seq = ++seq;
    return made;
  }
  void feed(EventKind kind, uint64_t address, uint64_t size = kUnknown, int32_t device = 0,
            int32_t result = 0) {
    Event made = event(kind, address, size, device);
    made.result = result;
    feed(made);
  }
  void feed(const Event& made) {
    driver.feed(made);
    pinned.feed(made);
  }
  uint64_t now(int32_t device = 0) const {
    const auto at = driver.devices().find(device);
    return at == driver.devices().end() ? 0 : at->second.total.current();
  }
  uint64_t peak(int32_t device = 0) const { return driver.devices().at(device).total.peak(); }
};

}  // namespace

TEST_CASE("device memory is what was allocated and not yet freed, by any call") {
  Feeder f;
  f.feed(EventKind::device_alloc, 0x1000, 100);
  f.feed(EventKind::async_alloc, 0x2000, 50);
  CHECK(f.now() == 150);
  f.feed(EventKind::device_free, 0x2000);  // cudaFree of stream-ordered memory
  f.feed(EventKind::async_free, 0x1000);
  CHECK(f.now() == 0);
  CHECK(f.peak() == 150);
  f.feed(EventKind::managed_alloc, 0x3000, 1000);  // no device memory of its own
  f.feed(EventKind::device_free, 0x3000);
  f.feed(EventKind::va_reserve, 0x4000, 1000);
  CHECK(f.peak() == 150);
}

TEST_CASE("failed calls change nothing, frees that had not returned count") {
  Feeder f;
  f.feed(EventKind::device_alloc, 0x1000, 100);
  f.feed(EventKind::device_alloc, kUnknown, 5000, 0, 2);
  f.feed(EventKind::device_free, 0x1000, kUnknown, 0, 1);
  CHECK(f.now() == 100);
  f.feed(EventKind::device_free, 0x1000, kUnknown, 0, kResultPending);
  CHECK(f.now() == 0);
  CHECK(f.peak() == 100);
}

TEST_CASE("a free belongs to the device that has the address") {
  Feeder f;
  f.feed(EventKind::device_alloc, 0x1000, 100, 0);
  f.feed(EventKind::device_alloc, 0x2000, 70, 1);
  f.feed(EventKind::device_free, 0x2000, kUnknown, 0);  // current device 0
  CHECK(f.now(0) == 100);
  CHECK(f.now(1) == 0);
  CHECK(f.peak(1) == 70);
}

TEST_CASE("physical memory lasts until it is released and unmapped") {
  Feeder f;
  f.feed(EventKind::phys_create, 7, 2 << 20);
  CHECK(f.now() == 2 << 20);
  Event map = f.event(EventKind::va_map, 0x10000000, 2 << 20);
  map.aux = 7;
  f.feed(map);
  f.feed(EventKind::phys_release, 7);
  CHECK(f.now() == 2 << 20);
  f.feed(EventKind::va_unmap, 0x10000000, 2 << 20);
  CHECK(f.now() == 0);

  f.feed(EventKind::phys_create, 8, 100);
  f.feed(EventKind::phys_release, 8);
  CHECK(f.now() == 0);
}

TEST_CASE("the end of a context ends what its device had") {
  Feeder f;
  f.feed(EventKind::device_alloc, 0x1000, 100, 0);
  f.feed(EventKind::phys_create, 5, 30, 0);
  f.feed(EventKind::pinned_alloc, 0x7000, 64, 0);
  f.feed(EventKind::pinned_register, 0x8000, 32, 0);
  f.feed(EventKind::device_alloc, 0x2000, 70, 1);
  f.feed(EventKind::context_destroy, kUnknown, kUnknown, 0);
  CHECK(f.now(0) == 0);
  CHECK(f.now(1) == 70);
  CHECK(f.peak(0) == 130);
  CHECK(f.pinned.gauge().current() == 32);
  f.feed(EventKind::device_free, 0x1000);  // of a pointer that is gone already
  CHECK(f.now(0) == 0);
}

TEST_CASE("blocks that an enforced policy serves are not memory from CUDA") {
  Feeder f;
  f.feed(EventKind::device_alloc, 0x1000, 2 << 20);
  Event served = f.event(EventKind::device_alloc, 0x1000, 512);
  served.flags = kFlagServed;
  f.feed(served);
  CHECK(f.now() == 2 << 20);
}

TEST_CASE("pinned memory: allocated and registered") {
  Feeder f;
  f.feed(EventKind::pinned_alloc, 0x7000, 4096);
  f.feed(EventKind::pinned_register, 0x9000, 1000);
  f.feed(EventKind::pinned_alloc, kUnknown, 999, 0, 2);
  f.feed(EventKind::pinned_free, 0x7000);
  f.feed(EventKind::pinned_unregister, 0x9000);
  f.feed(EventKind::pinned_free, 0x7000);  // twice
  CHECK(f.pinned.gauge().peak() == 5096);
  CHECK(f.pinned.gauge().current() == 0);
  CHECK(f.pinned.gauge().peak_seq() == 2);
}

TEST_CASE("an address that comes again without a free replaces the old allocation") {
  Feeder f;
  f.feed(EventKind::device_alloc, 0x1000, 100);
  f.feed(EventKind::device_alloc, 0x1000, 40);
  CHECK(f.now() == 40);
}

TEST_CASE("each sort of memory has an account of its own") {
  Feeder f;
  const auto of = [&f]() -> const DriverAccounts& { return f.driver.devices().at(0); };
  f.feed(EventKind::device_alloc, 0x1000, 100);
  f.feed(EventKind::async_alloc, 0x2000, 50);
  f.feed(EventKind::managed_alloc, 0x3000, 1000);
  Event array = f.event(EventKind::array_alloc, 0x77);  // CUDA's own size is not known
  array.requested = 64;
  f.feed(array);
  array.address = 0x88;
  array.aux2 = 0x40;  // sparse: no memory of its own
  f.feed(array);
  f.feed(EventKind::va_reserve, 0x40000000, 8 << 20);
  f.feed(EventKind::phys_create, 7, 2 << 20);
  Event map = f.event(EventKind::va_map, 0x40000000, 2 << 20);
  map.aux = 7;
  f.feed(map);
  map.address += 2 << 20;  // the same memory a second time
  f.feed(map);
  CHECK(of().plain.current() == 100);
  CHECK(of().stream_ordered.current() == 50);
  CHECK(of().arrays.current() == 64);
  CHECK(of().managed.current() == 1000);
  CHECK(of().reserved.current() == 8 << 20);
  CHECK(of().physical.current() == 2 << 20);
  CHECK(of().mapped.current() == 4 << 20);
  CHECK(of().total.current() == 100 + 50 + 64 + (2 << 20));
  f.feed(EventKind::array_free, 0x77);
  f.feed(EventKind::device_free, 0x3000);
  f.feed(EventKind::va_unmap, 0x40000000, 4 << 20);  // both mappings at once
  f.feed(EventKind::va_free, 0x40000000, 8 << 20);
  CHECK(of().arrays.current() + of().managed.current() + of().reserved.current() == 0);
  CHECK(of().mapped.current() == 0);
  CHECK(of().physical.current() == 2 << 20);
}

TEST_CASE("a retained handle keeps physical memory, whatever its number") {
  for (const uint64_t second : {uint64_t{7}, uint64_t{9}}) {
    Feeder f;
    f.feed(EventKind::phys_create, 7, 2 << 20);
    Event map = f.event(EventKind::va_map, 0x40000000, 2 << 20);
    map.aux = 7;
    f.feed(map);
    f.feed(EventKind::phys_release, 7);
    Event retain = f.event(EventKind::phys_retain, second);
    retain.aux = 0x40000000 + 5000;  // anywhere in the mapping
    f.feed(retain);
    f.feed(EventKind::va_unmap, 0x40000000, 2 << 20);
    CHECK(f.now() == 2 << 20);
    f.feed(EventKind::phys_release, second);
    CHECK(f.now() == 0);
  }
}

TEST_CASE("imported physical memory is its maker's") {
  Feeder f;
  f.feed(EventKind::phys_import, 5);
  Event map = f.event(EventKind::va_map, 0x40000000, 2 << 20);
  map.aux = 5;
  f.feed(map);
  CHECK(f.now() == 0);
  CHECK(f.driver.devices().at(0).mapped.current() == 2 << 20);
  f.feed(EventKind::phys_release, 5);
  f.feed(EventKind::va_unmap, 0x40000000, 2 << 20);
  CHECK(f.driver.devices().at(0).mapped.current() == 0);
}

TEST_CASE("allocation nodes are memory for as long as a graph is instantiated") {
  Feeder f;
  const auto with_graph = [&f](EventKind kind, uint64_t address, uint64_t size, uint64_t graph) {
    Event made = f.event(kind, address, size);
    made.aux = graph;
    f.feed(made);
  };
  with_graph(EventKind::graph_alloc, 0x9000, 100, 0xA);
  with_graph(EventKind::graph_alloc, 0x9100, 20, 0xA);
  with_graph(EventKind::graph_alloc, 0x9200, 7, 0xB);
  CHECK(f.now() == 0);
  with_graph(EventKind::graph_instantiate, 0xE1, kUnknown, 0xA);
  with_graph(EventKind::graph_instantiate, 0xE2, kUnknown, 0xB);
  CHECK(f.now() == 127);
  f.feed(EventKind::graph_destroy, 0xA);
  f.feed(EventKind::device_free, 0x9000);  // until the next launch
  CHECK(f.now() == 127);
  f.feed(EventKind::graph_exec_destroy, 0xE1);
  CHECK(f.now() == 7);
  with_graph(EventKind::graph_instantiate, 0xE3, kUnknown, 0xA);  // destroyed: nothing known of it
  CHECK(f.now() == 7);
}

TEST_CASE("a context that the program made takes only its own along") {
  Feeder f;
  f.feed(EventKind::device_alloc, 0x1000, 100);  // before there was a second context
  const auto in_context = [&f](EventKind kind, uint64_t address, uint64_t size, uint64_t context) {
    Event made = f.event(kind, address, size);
    made.aux = context;
    f.feed(made);
  };
  in_context(EventKind::device_alloc, 0x2000, 50, 0xC1);
  in_context(EventKind::managed_alloc, 0x3000, 10, 0xC1);
  in_context(EventKind::pinned_alloc, 0x7000, 64, 0xC1);
  in_context(EventKind::pinned_alloc, 0x8000, 32, 0xC2);
  f.feed(EventKind::context_destroy, 0xC1, kUnknown, -1);
  CHECK(f.now() == 100);
  CHECK(f.driver.devices().at(0).managed.current() == 0);
  CHECK(f.pinned.gauge().current() == 32);
}
