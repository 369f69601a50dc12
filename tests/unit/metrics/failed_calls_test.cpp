#include "metrics/failed_calls.h"

#include "metrics/memory_info.h"
#include "metrics/shared_memory.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::metrics;

namespace {

Event made(EventKind kind, int32_t result, uint64_t size = kUnknown) {
  Event event;
  event.kind = kind;
  event.api = static_cast<uint16_t>(kind);
  event.result = result;
  event.size = size;
  event.device = 0;
  return event;
}

}  // namespace

TEST_CASE("failures are put together by function and error, probes stand apart") {
  FailedCalls calls;
  calls.feed(made(EventKind::device_alloc, 0, 5), 0);
  calls.feed(made(EventKind::device_alloc, 2, 100), 70);
  calls.feed(made(EventKind::device_alloc, 2, 900), 80);
  calls.feed(made(EventKind::device_alloc, kResultPending, 900), 80);
  Event probe = made(EventKind::phys_create, 801, 2 << 20);
  probe.aux2 = 8;
  calls.feed(probe, 80);
  probe.result = 2;  // out of memory is none
  calls.feed(probe, 80);
  CHECK(calls.count() == 4);
  CHECK(calls.probes() == 1);
  const auto rows = calls.by_function();
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].kind == EventKind::device_alloc);
  CHECK(rows[0].count == 2);
  CHECK(rows[0].largest_bytes == 900);
  CHECK(rows[0].held_bytes == 70);  // of the first
  CHECK_FALSE(rows[0].free_bytes);
  CHECK(rows[1].result == 2);
  CHECK(rows[2].probe);
}

TEST_CASE("a failure knows what cudaMemGetInfo had last told") {
  FailedCalls calls;
  Event info = made(EventKind::memory_info, 0, 1000);
  info.aux = 300;
  calls.feed(info, 0);
  calls.feed(made(EventKind::device_alloc, 2, 400), 0);
  CHECK(calls.by_function().at(0).free_bytes == 300);
}

TEST_CASE("what the device says less what the books say") {
  MemoryInfos infos;
  Event info = made(EventKind::memory_info, 0, 1000);
  info.aux = 700;
  infos.feed(info, 100);
  info.aux = 600;
  infos.feed(info, 150);
  info.aux = kUnknown;  // the program asked for the total alone
  infos.feed(info, 0);
  info.aux = 990;
  info.result = 3;
  infos.feed(info, 0);
  const MemoryInfo& device = infos.devices().at(0);
  CHECK(device.answers == 2);
  CHECK(device.first_unexplained == 200);
  CHECK(device.last_unexplained == 250);
  CHECK(device.used_bytes == 400);
  info.result = 0;
  infos.feed(info, 50);  // the books have more than the device
  CHECK(infos.devices().at(0).last_unexplained == -40);
}

TEST_CASE("memory of others: keys, handles, closes") {
  SharedMemory shared;
  Event own = made(EventKind::device_alloc, 0, 4096);
  own.address = 0x1000;
  shared.feed(own);
  Event event = made(EventKind::ipc_export, 0);
  event.address = 0x1000;
  event.aux = 77;
  shared.feed(event);
  event.address = 0x5000;  // an address whose allocation was not seen
  event.aux = 78;
  shared.feed(event);
  CHECK(shared.exports().at(77) == 4096);
  CHECK(shared.exports().at(78) == std::nullopt);
  Event open = made(EventKind::ipc_open, 0);
  open.address = 0x9000;
  open.aux = 99;
  shared.feed(open);
  shared.feed(open);  // the same address a second time
  open.result = 201;
  open.address = 0xA000;
  shared.feed(open);
  REQUIRE(shared.opened().size() == 1);
  CHECK(shared.opened()[0].key == 99);
  CHECK_FALSE(shared.opened()[0].closed);
  Event close = made(EventKind::ipc_close, 0);
  close.address = 0x9000;
  shared.feed(close);
  CHECK(shared.opened()[0].closed);
  Event import = made(EventKind::external_import, 0, 500);
  import.address = 0xE;
  shared.feed(import);
  import.kind = EventKind::external_destroy;
  shared.feed(import);
  CHECK(shared.external().peak() == 500);
  CHECK(shared.external().current() == 0);
}
