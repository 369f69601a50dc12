// TraceWriter -> bytes -> TraceReader.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/trace/sample_trace.h"
#include "trace/format.h"

using namespace fragscope;
using namespace fragscope::trace_test;
using trace::TraceReader;
using trace::TraceWriter;

namespace {

std::vector<std::byte> write_events(const std::vector<Event>& events) {
  trace::MemorySink sink;
  auto writer = TraceWriter::start(sink, sample_process());
  REQUIRE(writer.ok());
  for (const Event& event : events) {
    if (!writer->add_event(event).ok()) FAIL("event " << event.seq << " was refused");
  }
  require_ok(writer->seal(sample_process(), {}));
  return sink.bytes();
}

TraceReader open(std::vector<std::byte> bytes) {
  auto reader = TraceReader::open_bytes(std::move(bytes), "test.fst");
  INFO((reader.ok() ? std::string() : reader.error().text));
  REQUIRE(reader.ok());
  return std::move(reader).value();
}

}  // namespace

TEST_CASE("every kind with extreme values comes back as it was written") {
  for (const size_t count : {0u, 1u, 2u, 63u, 64u, 65u, 1024u, 1025u, 5000u}) {
    const auto events = random_events(count + 7, count);
    TraceReader reader = open(write_events(events));
    CHECK(read_events(reader) == events);
    CHECK(reader.process().sealed);
    CHECK(reader.process().event_count == count);
    CHECK_FALSE(reader.damage());
    reader.rewind();
    CHECK(read_events(reader) == events);
  }
}

TEST_CASE("more events than a chunk holds") {
  const auto events = random_events(3, 2 * trace::kMaxChunkEvents + 17);
  TraceReader reader = open(write_events(events));
  CHECK(read_events(reader) == events);
  reader.rewind();
  std::vector<Event> batched;
  for (auto batch = reader.next_batch(); !batch.empty(); batch = reader.next_batch()) {
    batched.insert(batched.end(), batch.begin(), batch.end());
  }
  CHECK(batched == events);
}

TEST_CASE("next() and next_batch() go on where the other stopped") {
  const auto events = random_events(5, 3000);
  TraceReader reader = open(write_events(events));
  std::vector<Event> all(1);
  REQUIRE(reader.next(all[0]));
  for (auto batch = reader.next_batch(); !batch.empty(); batch = reader.next_batch()) {
    all.insert(all.end(), batch.begin(), batch.end());
    Event event;
    if (reader.next(event)) all.push_back(event);
  }
  CHECK(all == events);
}

TEST_CASE("seq may have gaps but does not go back") {
  auto events = random_events(9, 10);
  for (size_t i = 4; i < events.size(); ++i) events[i].seq += 100;
  TraceReader reader = open(write_events(events));
  CHECK(read_events(reader) == events);
  CHECK_FALSE(reader.damage());

  trace::MemorySink sink;
  auto writer = TraceWriter::start(sink, sample_process());
  REQUIRE(writer.ok());
  require_ok(writer->add_event(events[3]));
  CHECK(writer->add_event(events[3]).error().code == ErrorCode::kInvalidArgument);
  Event foreign = events[4];
  foreign.pid = 1;
  CHECK(writer->add_event(foreign).error().code == ErrorCode::kInvalidArgument);
}

TEST_CASE("process, tables and trailer") {
  TraceReader reader = open(sample_trace());
  const trace::ProcessInfo& process = reader.process();
  CHECK(process.pid == 4321);
  CHECK(process.start_ticks == 987654);
  CHECK(process.realtime_ns == 1'700'000'000'000'000'000);
  CHECK(process.monotonic_ns == 5'000'000'000);
  CHECK(process.program == "demo");
  CHECK(process.shim_version == "0.1.0");
  CHECK(process.properties.at("block_source") == "adaptor");
  CHECK(process.exit.kind == trace::ExitKind::signaled);
  CHECK(process.exit.code == 9);
  CHECK(process.event_count == all_kinds().size());
  CHECK(process.dropped_events == 7);
  CHECK(process.torn_records == 2);

  CHECK(reader.tables().stacks.empty());
  reader.load_tables();
  const trace::TraceTables& tables = reader.tables();
  CHECK(tables.stacks.at(1) == std::vector<uint64_t>{0x7f0000001000, 0x7f0000002000, 0x400123});
  CHECK(tables.stacks.at(2) == std::vector<uint64_t>{0x7f0000001800, 0x7f0000002000, 0x400123});
  CHECK(tables.texts.at(16) == "step 16");
  CHECK(tables.api_names.at(1) == "cudaMalloc");
  REQUIRE(tables.modules.size() == 1);
  CHECK(tables.modules[0].path == "/usr/bin/demo");
  CHECK(tables.modules[0].build_id == "abcdef0123");
  CHECK(tables.modules[0].end == 0x500000);
  CHECK(tables.api_calls.at("cudaMalloc") == 12);
  CHECK(read_events(reader).size() == all_kinds().size());
  CHECK(tables.modules.size() == 1);  // not taken twice
}

TEST_CASE("an unsealed trace tells what it can") {
  TraceReader reader = open(sample_trace(false));
  CHECK_FALSE(reader.process().sealed);
  CHECK_FALSE(reader.damage());
  CHECK(reader.process().exit.kind == trace::ExitKind::running);
  CHECK(reader.process().event_count == all_kinds().size());
  CHECK(reader.process().properties.at("block_source") == "adaptor");
  CHECK(read_events(reader).size() == all_kinds().size());
}

TEST_CASE("deep stacks and long texts are cut, repeated ids are ignored") {
  trace::MemorySink sink;
  auto writer = TraceWriter::start(sink, sample_process());
  REQUIRE(writer.ok());
  require_ok(writer->add_stack(1, std::vector<uint64_t>(5000, 42)));
  require_ok(writer->add_stack(1, std::vector<uint64_t>(3, 41)));
  require_ok(writer->add_stack(2, std::vector<uint64_t>{}));
  require_ok(writer->add_text(1, std::string(2 << 20, 'x')));
  require_ok(writer->seal(sample_process(), {}));
  TraceReader reader = open(sink.bytes());
  reader.load_tables();
  CHECK(reader.tables().stacks.at(1) == std::vector<uint64_t>(4096, 42));
  CHECK(reader.tables().stacks.at(2).empty());
  CHECK(reader.tables().texts.at(1) == std::string(1 << 20, 'x'));
  CHECK_FALSE(reader.damage());
}

TEST_CASE("tables beyond one chunk") {
  trace::MemorySink sink;
  auto writer = TraceWriter::start(sink, sample_process());
  REQUIRE(writer.ok());
  std::mt19937_64 random(4);
  std::vector<std::vector<uint64_t>> stacks;
  for (uint32_t id = 0; id < 3000; ++id) {
    std::vector<uint64_t> frames(random() % 2000);
    for (uint64_t& frame : frames) frame = random();
    stacks.push_back(frames);
    require_ok(writer->add_stack(id, frames));
  }
  require_ok(writer->seal(sample_process(), {}));
  TraceReader reader = open(sink.bytes());
  reader.load_tables();
  REQUIRE(reader.tables().stacks.size() == stacks.size());
  for (uint32_t id = 0; id < stacks.size(); ++id) {
    if (reader.tables().stacks.at(id) != stacks[id]) FAIL("stack " << id);
  }
}

TEST_CASE("a sink that fails is told once and every time after") {
  struct Full final : trace::ByteSink {
    uint64_t room = 400;
    std::vector<std::byte> bytes;
    Status write(std::span<const std::byte> more) override {
      if (bytes.size() + more.size() > room) return Error{ErrorCode::kNoSpace, "full"};
      bytes.insert(bytes.end(), more.begin(), more.end());
      return Done{};
    }
  } sink;
  auto writer = TraceWriter::start(sink, sample_process());
  REQUIRE(writer.ok());
  const auto events = random_events(2, 200);
  for (int i = 0; i < 2; ++i) require_ok(writer->add_event(events[static_cast<size_t>(i)]));
  require_ok(writer->flush());
  for (size_t i = 2; i < events.size(); ++i) require_ok(writer->add_event(events[i]));
  CHECK(writer->flush().error().code == ErrorCode::kNoSpace);
  sink.room = 1 << 20;
  CHECK(writer->flush().error().code == ErrorCode::kNoSpace);
  CHECK(writer->seal(sample_process(), {}).error().code == ErrorCode::kNoSpace);
  TraceReader reader = open(sink.bytes);
  CHECK(read_events(reader) == std::vector<Event>(events.begin(), events.begin() + 2));
  CHECK_FALSE(reader.damage());
}

TEST_CASE("nothing follows a seal") {
  trace::MemorySink sink;
  auto writer = TraceWriter::start(sink, sample_process());
  REQUIRE(writer.ok());
  require_ok(writer->seal(sample_process(), {}));
  CHECK_FALSE(writer->add_property("a", "b").ok());
  CHECK_FALSE(writer->seal(sample_process(), {}).ok());
}

TEST_CASE("files: the same as bytes; missing, foreign and special files are named") {
  const std::filesystem::path dir =
      std::filesystem::temp_directory_path() / ("fs-trace-" + std::to_string(::getpid()));
  std::filesystem::create_directory(dir);
  const std::string path = dir / "a.fst";
  const auto bytes = sample_trace();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  auto reader = TraceReader::open_file(path);
  REQUIRE(reader.ok());
  CHECK(read_events(*reader).size() == all_kinds().size());
  CHECK(TraceReader::open_file(dir / "none").error().code == ErrorCode::kNotFound);
  CHECK(TraceReader::open_file(dir).error().code == ErrorCode::kForeign);
  CHECK(TraceReader::open_file("/dev/null").error().code == ErrorCode::kForeign);
  // A file that shrinks while it is open ends early.
  reader->rewind();
  std::filesystem::resize_file(path, bytes.size() / 2);
  CHECK(read_events(*reader).size() < all_kinds().size());
  CHECK(reader->damage());
  std::filesystem::remove_all(dir);
}
