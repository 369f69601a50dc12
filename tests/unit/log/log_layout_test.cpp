// The bytes of a log, for ever the same within a version.
#include "log/log_layout.h"

#include "tests/support/golden.h"
#include "tests/unit/log/log_fixture.h"

using namespace fragscope;
using namespace fragscope::log_test;

TEST_CASE("offsets of the header") {
  CHECK(offsetof(log::LogHeader, version) == 8);
  CHECK(offsetof(log::LogHeader, header_bytes) == 12);
  CHECK(offsetof(log::LogHeader, slot_bytes) == 16);
  CHECK(offsetof(log::LogHeader, pid) == 20);
  CHECK(offsetof(log::LogHeader, capacity_slots) == 24);
  CHECK(offsetof(log::LogHeader, chunk_slots) == 32);
  CHECK(offsetof(log::LogHeader, start_ticks) == 40);
  CHECK(offsetof(log::LogHeader, realtime_ns) == 48);
  CHECK(offsetof(log::LogHeader, monotonic_ns) == 56);
  CHECK(offsetof(log::LogHeader, program) == 64);
  CHECK(offsetof(log::LogHeader, shim_version) == 128);
  CHECK(offsetof(log::LogHeader, write_pos) == 192);
  CHECK(offsetof(log::LogHeader, read_pos) == 256);
  CHECK(offsetof(log::LogHeader, allocated_slots) == 320);
  CHECK(offsetof(log::LogHeader, dropped_events) == 328);
  CHECK(offsetof(log::LogHeader, grow_errno) == 336);
  CHECK(offsetof(log::LogHeader, finished) == 340);
  CHECK(offsetof(log::LogHeader, api_calls) == 384);
  CHECK(offsetof(log::LogHeader, paused) == 4480);
  CHECK(offsetof(log::LogHeader, mark_wanted) == 4484);
  CHECK(offsetof(log::LogHeader, mark_claimed) == 4488);
  CHECK(offsetof(log::LogHeader, mark_done) == 4492);
  CHECK(offsetof(log::LogHeader, skipped_events) == 4496);
  CHECK(offsetof(log::LogHeader, flush_wanted) == 4504);
  CHECK(offsetof(log::LogHeader, flush_done) == 4512);
  CHECK(offsetof(log::LogHeader, mark_text) == 4520);
  CHECK(offsetof(log::LogHeader, ring_first_slot) == 5568);
  CHECK(offsetof(log::LogHeader, ring_slots) == 5576);
  CHECK(offsetof(log::LogHeader, ring_read_pos) == 5584);
  CHECK(offsetof(log::LogHeader, ring_write_pos) == 5632);
  CHECK(log::commit_word(0, log::SlotType::event, false) == 0x102);
  CHECK(log::commit_word(0, log::SlotType::event, true) == 0x103);
  CHECK(log::commit_word(6, log::SlotType::blob, true) == 0x705);
}

TEST_CASE("header and slots byte by byte") {
  TemporaryDirectory temporary("layout");
  Log log(temporary.path / "a.fslog", kSmallRing);
  log.writer.write(numbered_event(0x1234));
  log.writer.commit(log.writer.reserve(), numbered_event(1), false);
  log.writer.write_blob(log::BlobKind::property, 7, "key=value");
  static_cast<void>(log.writer.reserve());
  log.writer.header()->api_calls[2] = 0x11;
  log.writer.header()->finished = 1;
  const std::span<const std::byte> bytes(log.region.data(),
                                         log::kHeaderBytes + 4 * log::kSlotBytes);
  test::check_golden("trace/log.hex", test::hex_dump(bytes));
}
