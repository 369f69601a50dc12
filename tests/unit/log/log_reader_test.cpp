#include "log/log_reader.h"

#include <sys/stat.h>

#include <fstream>
#include <random>

#include "tests/unit/log/log_fixture.h"

using namespace fragscope;
using namespace fragscope::log_test;
using log::BlobKind;
using log::LogReader;

namespace {

constexpr auto kInspect = LogReader::Access::inspect;

std::string blob_text(size_t bytes, char first) {
  std::string text(bytes, ' ');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(first + static_cast<char>(i % 50));
  return text;
}

void poke(const std::string& path, uint64_t offset, uint64_t value, size_t bytes = 8) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(reinterpret_cast<const char*>(&value), static_cast<std::streamsize>(bytes));
}

}  // namespace

TEST_CASE("events come back in order with seq, pid and all fields") {
  TemporaryDirectory temporary("log");
  const std::string path = temporary.path / "a.fslog";
  Log log(path, kSmallRing);
  LogReader reader = open_log(path);
  const auto identity = reader.identity();
  REQUIRE(identity.ok());
  CHECK(identity->pid == 77);
  CHECK(identity->start_ticks == 12345);
  CHECK(identity->program == "writer");
  CHECK(identity->shim_version == "0.1.0");
  CHECK(identity->monotonic_ns == 1'000'000);
  for (uint64_t i = 0; i < 3000; ++i) log.writer.write(numbered_event(i));
  Collected got;
  CHECK(read_all(reader, got, true) == 3000);
  CHECK(read_all(reader, got, true) == 0);
  REQUIRE(got.events.size() == 3000);
  for (uint64_t i = 0; i < 3000; ++i) {
    Event expected = numbered_event(i);
    expected.seq = i + 1;
    expected.pid = 77;
    if (!(got.events[i] == expected)) FAIL("event " << i);
  }
}

TEST_CASE("time never goes back within a process") {
  TemporaryDirectory temporary("log");
  const std::string path = temporary.path / "a.fslog";
  Log log(path, kSmallRing);
  for (const uint64_t time : {50u, 40u, 60u, 10u}) {
    Event event = numbered_event(1);
    event.time_ns = time;
    log.writer.write(event);
  }
  LogReader reader = open_log(path);
  Collected got;
  read_all(reader, got, true);
  std::vector<uint64_t> times;
  for (const Event& event : got.events) times.push_back(event.time_ns);
  CHECK(times == std::vector<uint64_t>{50, 50, 60, 60});
}

TEST_CASE("a live reader waits at what is not final; after death it takes and counts") {
  TemporaryDirectory temporary("log");
  const std::string path = temporary.path / "a.fslog";
  Log log(path, kSmallRing);
  log.writer.write(numbered_event(0));
  const auto pending = log.writer.reserve();
  log.writer.commit(pending, numbered_event(1), false);
  log.writer.write(numbered_event(2));
  LogReader reader = open_log(path);
  Collected got;
  CHECK(read_all(reader, got, true) == 1);
  CHECK(read_all(reader, got, true) == 0);
  log.writer.finish(pending, 2);
  CHECK(read_all(reader, got, true) == 2);
  REQUIRE(got.events.size() == 3);
  CHECK(got.events[1].result == 2);

  const auto never_finished = log.writer.reserve();
  log.writer.commit(never_finished, numbered_event(3), false);
  static_cast<void>(log.writer.reserve());  // torn
  log.writer.write(numbered_event(4));
  CHECK(read_all(reader, got, true) == 0);
  CHECK(read_all(reader, got, false) == 3);
  CHECK(reader.torn_records() == 1);
  REQUIRE(got.events.size() == 5);
  CHECK(got.events[3].result == kResultPending);
  CHECK(got.events[4].size == 4);
  CHECK(got.events[4].seq == 5);
  CHECK(read_all(reader, got, false) == 0);
}

TEST_CASE("blobs: every length, interleaved writers, the longest, one that was cut off") {
  TemporaryDirectory temporary("log");
  const std::string path = temporary.path / "a.fslog";
  Log log(path, kSmallRing);
  std::vector<std::string> texts;
  for (const size_t bytes : {0u, 1u, 71u, 72u, 73u, 144u, 145u, 5000u}) {
    texts.push_back(blob_text(bytes, 'a'));
    log.writer.write_blob(BlobKind::text, static_cast<uint32_t>(texts.size()), texts.back());
  }
  texts.push_back(std::string(log::kMaxBlobBytes, 'z'));
  log.writer.write_blob(BlobKind::stack, 9, texts.back() + "too long");
  LogReader reader = open_log(path);
  Collected got;
  read_all(reader, got, true);
  REQUIRE(got.blobs.size() == texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    CHECK(got.blobs[i].id == i + 1);
    CHECK((got.blobs[i].bytes == texts[i]));
  }
  CHECK(got.blobs.back().kind == BlobKind::stack);
}

TEST_CASE("parts of two writers of one blob do not mix up") {
  log::BlobAssembler assembler;
  const auto part = [](uint16_t number, char content) {
    log::BlobPart blob{};
    blob.kind = static_cast<uint8_t>(BlobKind::stack);
    blob.id = 5;
    blob.part = number;
    blob.parts = 3;
    blob.bytes = number == 2 ? 10 : log::kBlobPartBytes;
    std::memset(blob.data, content, sizeof blob.data);
    REQUIRE(log::BlobAssembler::valid(blob));
    return blob;
  };
  CHECK_FALSE(assembler.add(part(0, 'a'), 10));
  CHECK_FALSE(assembler.add(part(0, 'a'), 11));
  CHECK_FALSE(assembler.add(part(1, 'b'), 12));
  CHECK_FALSE(assembler.add(part(1, 'b'), 13));
  CHECK(assembler.oldest_pending(99) == 10);
  const auto whole = assembler.add(part(2, 'c'), 14);
  REQUIRE(whole);
  CHECK(whole->size() == 2 * log::kBlobPartBytes + 10);
  CHECK(static_cast<char>(whole->back()) == 'c');
  CHECK_FALSE(assembler.add(part(2, 'c'), 15));  // its end without a beginning
  CHECK(assembler.oldest_pending(99) == 99);
  for (uint32_t id = 0; id < 3 * log::BlobAssembler::kMaxPending; ++id) {
    auto other = part(0, 'x');
    other.id = id;
    assembler.add(other, id);
  }
  CHECK(assembler.pending() == log::BlobAssembler::kMaxPending);
}

TEST_CASE("a ring: slots are used again after they were given back, and not before") {
  TemporaryDirectory temporary("log");
  const std::string path = temporary.path / "a.fslog";
  Log log(path, kSmallRing);
  LogReader reader = open_log(path);
  Collected got;
  uint64_t written = 0;
  const auto write_until_full = [&] {
    const uint64_t dropped = log.writer.header()->dropped_events;
    while (log.writer.header()->dropped_events == dropped) {
      log.writer.write(numbered_event(written));
      if (log.writer.header()->dropped_events == dropped) ++written;
    }
  };
  for (int lap = 0; lap < 5; ++lap) {
    write_until_full();
    read_all(reader, got, true);
    CHECK(got.events.size() == written);
    // Read, but not given back: the writer still finds no room.
    log.writer.write(numbered_event(0));
    CHECK(read_all(reader, got, true) == 0);
    CHECK(reader.unpublished() > 0);
    REQUIRE(reader.publish().ok());
    CHECK(reader.unpublished() == 0);
  }
  CHECK(written > 3 * kSmallRing);
  CHECK(log.writer.header()->dropped_events == 10);
  const auto state = reader.state();
  REQUIRE(state.ok());
  CHECK(state->dropped_events == 10);
  for (uint64_t i = 0; i < written; ++i) {
    if (got.events[i].size != i) FAIL("event " << i);
  }
}

TEST_CASE("growth: the file grows by chunks, a refusing file system drops and counts") {
  TemporaryDirectory temporary("log");
  const std::string path = temporary.path / "a.fslog";
  Log log(path, 4 * kSmallRing);
  CHECK(fs::file_size(path) == log::kHeaderBytes + kSmallRing * log::kSlotBytes);
  LogReader reader = open_log(path);  // opened before it grew
  for (uint64_t i = 0; i < 2 * kSmallRing; ++i) log.writer.write(numbered_event(i));
  CHECK(fs::file_size(path) > log::kHeaderBytes + 2 * kSmallRing * log::kSlotBytes);
  Collected got;
  CHECK(read_all(reader, got, true) == 2 * kSmallRing);
  CHECK(got.events.back().size == 2 * kSmallRing - 1);
}

TEST_CASE("resume: what another reader has taken is not told again") {
  TemporaryDirectory temporary("log");
  const std::string path = temporary.path / "a.fslog";
  Log log(path, kSmallRing);
  for (uint64_t i = 0; i < 100; ++i) log.writer.write(numbered_event(i));
  log.writer.write_blob(BlobKind::text, 1, blob_text(200, 'a'));  // positions 100 to 102
  for (uint64_t i = 100; i < 110; ++i) log.writer.write(numbered_event(i));
  for (const uint64_t from : {0u, 50u, 100u, 101u, 102u, 103u, 113u}) {
    LogReader reader = open_log(path, kInspect);
    reader.resume(from, 1000, 1'000'000 + 105);
    Collected got;
    read_all(reader, got, true);
    const uint64_t skipped = std::min<uint64_t>(from, 100) + (from > 103 ? from - 103 : 0);
    CHECK(got.events.size() == 110 - skipped);
    CHECK(got.blobs.size() == (from <= 102 ? 1 : 0));
    if (got.events.empty()) continue;
    CHECK(got.events.front().size == skipped);
    CHECK(got.events.front().seq == 1001);
    CHECK(got.events.front().time_ns >= 1'000'000 + 105);
    CHECK(reader.torn_records() == 0);
  }
}

TEST_CASE("an unfinished blob holds its slots back, so that resume finds its beginning") {
  TemporaryDirectory temporary("log");
  const std::string path = temporary.path / "a.fslog";
  Log log(path, kSmallRing);
  LogReader reader = open_log(path);
  log.writer.write(numbered_event(0));
  const std::string text = blob_text(3 * log::kBlobPartBytes, 'a');
  const auto write_part = [&](uint16_t part) {
    const auto ticket = log.writer.reserve();
    log::BlobPart& blob = ticket.slot->blob;
    blob = {};
    blob.kind = static_cast<uint8_t>(BlobKind::text);
    blob.id = 1;
    blob.part = part;
    blob.parts = 3;
    blob.bytes = log::kBlobPartBytes;
    std::memcpy(blob.data, text.data() + part * log::kBlobPartBytes, log::kBlobPartBytes);
    ticket.slot->commit.store(log::commit_word(ticket.position, log::SlotType::blob, true));
  };
  write_part(0);
  write_part(1);
  log.writer.write(numbered_event(1));
  Collected got;
  CHECK(read_all(reader, got, true) == 4);
  REQUIRE(reader.publish().ok());
  CHECK(log.writer.header()->read_pos == 1);
  write_part(2);
  LogReader second = open_log(path, kInspect);
  second.resume(4, 2, 0);
  Collected rest;
  read_all(second, rest, true);
  CHECK(rest.events.empty());
  REQUIRE(rest.blobs.size() == 1);
  CHECK(rest.blobs[0].bytes == text);
}

TEST_CASE("inspecting a log that a collector drains meanwhile is refused, not guessed") {
  TemporaryDirectory temporary("log");
  const std::string path = temporary.path / "a.fslog";
  Log log(path, kSmallRing);
  for (uint64_t i = 0; i < 100; ++i) log.writer.write(numbered_event(i));
  LogReader inspector = open_log(path, kInspect);
  LogReader drainer = open_log(path);
  Collected got;
  read_all(drainer, got, true);
  REQUIRE(drainer.publish().ok());
  const auto passed = inspector.read(got, true);
  REQUIRE_FALSE(passed.ok());
  CHECK(passed.error().code == ErrorCode::kUnsupported);
  CHECK_FALSE(inspector.publish().ok());
}

TEST_CASE("files that are no logs, or of a newer version") {
  TemporaryDirectory temporary("log");
  const std::string path = temporary.path / "a.fslog";
  const auto code = [&] { return LogReader::open(path, kInspect).error().code; };
  CHECK(code() == ErrorCode::kNotFound);
  std::ofstream(path) << "";
  CHECK(code() == ErrorCode::kForeign);
  std::ofstream(path) << "text";
  CHECK(code() == ErrorCode::kForeign);
  std::ofstream(path) << std::string(20000, 'x');
  CHECK(code() == ErrorCode::kForeign);
  fs::remove(path);
  fs::create_directory(path);
  CHECK(code() == ErrorCode::kForeign);
  fs::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(code() == ErrorCode::kForeign);
  fs::remove(path);
  { Log log(path, kSmallRing); }
  fs::create_symlink(path, temporary.path / "link.fslog");
  CHECK_FALSE(LogReader::open(temporary.path / "link.fslog", kInspect).ok());
  poke(path, offsetof(log::LogHeader, version), log::kVersion + 1, 4);
  const auto newer = LogReader::open(path, kInspect);
  REQUIRE_FALSE(newer.ok());
  CHECK(newer.error().code == ErrorCode::kNewerVersion);
  CHECK(newer.error().text.find("version 4") != std::string::npos);
}

TEST_CASE("hostile headers: no crash, no endless loop, nothing invented") {
  TemporaryDirectory temporary("log");
  const std::string path = temporary.path / "a.fslog";
  const uint64_t values[] = {0,          1,          4096,           kSmallRing - 1,
                             kSmallRing, UINT32_MAX, 1ull << 36,     1ull << 40,
                             1ull << 56, INT64_MAX,  UINT64_MAX - 1, UINT64_MAX};
  const uint64_t offsets[] = {
      offsetof(log::LogHeader, capacity_slots), offsetof(log::LogHeader, write_pos),
      offsetof(log::LogHeader, read_pos), offsetof(log::LogHeader, allocated_slots),
      offsetof(log::LogHeader, chunk_slots)};
  for (const uint64_t offset : offsets) {
    for (const uint64_t value : values) {
      for (const bool alive : {true, false}) {
        fs::remove(path);
        Log log(path, kSmallRing);
        for (uint64_t i = 0; i < 50; ++i) log.writer.write(numbered_event(i));
        poke(path, offset, value);
        auto reader = LogReader::open(path, LogReader::Access::drain);
        if (!reader) continue;
        Collected got;
        const auto passed = reader->read(got, alive);
        INFO("offset " << offset << " value " << value << " alive " << alive);
        CHECK(passed.ok());
        CHECK(got.events.size() <= 50);
        for (size_t i = 1; i < got.events.size(); ++i) {
          CHECK(got.events[i].size == got.events[i - 1].size + 1);
        }
      }
    }
  }
}

TEST_CASE("a file that its owner cut short loses records, and counts them") {
  TemporaryDirectory temporary("log");
  const std::string path = temporary.path / "a.fslog";
  Log log(path, kSmallRing);
  for (uint64_t i = 0; i < 50; ++i) log.writer.write(numbered_event(i));
  LogReader reader = open_log(path);
  fs::resize_file(path, log::kHeaderBytes + 20 * log::kSlotBytes + 30);
  Collected got;
  read_all(reader, got, false);
  CHECK(got.events.size() == 20);
  CHECK(reader.torn_records() == 30);
  fs::resize_file(path, 100);
  CHECK_FALSE(reader.publish().ok());
  CHECK(reader.read(got, false).ok());
  CHECK(got.events.size() == 20);
}

TEST_CASE("random damage of slots never reaches a consumer as another kind") {
  TemporaryDirectory temporary("log");
  const std::string path = temporary.path / "a.fslog";
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    fs::remove(path);
    Log log(path, kSmallRing);
    for (uint64_t i = 0; i < 20; ++i) {
      log.writer.write(numbered_event(i));
      log.writer.write_blob(BlobKind::text, static_cast<uint32_t>(i), blob_text(i * 20, 'a'));
    }
    for (int change = 0; change < 50; ++change) {
      log.region.data()[log::kHeaderBytes + random() % (60 * log::kSlotBytes)] =
          static_cast<std::byte>(random());
    }
    LogReader reader = open_log(path);
    Collected got;
    read_all(reader, got, false);
    for (const Event& event : got.events) CHECK(event.kind != EventKind::none);
    for (const auto& blob : got.blobs) CHECK(blob.bytes.size() <= log::kMaxBlobBytes);
    CHECK(reader.position() == log.writer.header()->write_pos);
  }
}
