// Cut, damaged, foreign, newer and invented traces: an error or a true prefix with damage(), never
// a crash and never a wrong event.
#include "base/byte_cursor.h"
#include "tests/unit/trace/sample_trace.h"
#include "trace/checksum.h"
#include "trace/compression.h"
#include "trace/format.h"

using namespace fragscope;
using namespace fragscope::trace_test;
using trace::TraceReader;

namespace {

struct Original {
  std::vector<std::byte> bytes = sample_trace();
  std::vector<Event> events;
  trace::TraceTables tables;

  Original() {
    auto reader = TraceReader::open_bytes(bytes, "original");
    REQUIRE(reader.ok());
    events = read_events(*reader);
    tables = reader->tables();
  }
};

template <typename Map>
bool is_part_of(const Map& part, const Map& whole) {
  for (const auto& [id, value] : part) {
    const auto found = whole.find(id);
    if (found == whole.end() || found->second != value) return false;
  }
  return true;
}

// What a reader made of `bytes`; fails the test if any of it is not in the original.
struct Outcome {
  bool opened = false;
  bool damaged = false;
  bool sealed = false;
  size_t events = 0;
};
Outcome read_damaged(const Original& original, std::vector<std::byte> bytes) {
  Outcome outcome;
  auto reader = TraceReader::open_bytes(std::move(bytes), "damaged");
  if (!reader) return outcome;
  outcome.opened = true;
  const auto events = read_events(*reader);
  reader->load_tables();
  outcome.events = events.size();
  outcome.damaged = reader->damage().has_value();
  outcome.sealed = reader->process().sealed;
  const bool prefix = events.size() <= original.events.size() &&
                      std::equal(events.begin(), events.end(), original.events.begin());
  if (!prefix) FAIL("events that were never written");
  if (!is_part_of(reader->tables().stacks, original.tables.stacks)) FAIL("wrong stacks");
  if (!is_part_of(reader->tables().texts, original.tables.texts)) FAIL("wrong texts");
  reader->rewind();
  if (read_events(*reader) != events) FAIL("another answer after rewind");
  return outcome;
}

std::vector<std::byte> header_bytes() { return trace::encode_file_header(sample_process()); }

std::vector<std::byte> with_chunk(uint32_t tag, uint32_t records, std::span<const std::byte> raw) {
  std::vector<std::byte> bytes = header_bytes();
  const auto chunk = trace::encode_chunk(tag, records, raw);
  bytes.insert(bytes.end(), chunk.begin(), chunk.end());
  return bytes;
}

// Opens, reads all; returns how many events came.
size_t survive(std::vector<std::byte> bytes, bool& damaged) {
  auto reader = TraceReader::open_bytes(std::move(bytes), "hostile");
  damaged = !reader.ok();
  if (!reader) return 0;
  reader->load_tables();
  size_t count = 0;
  for (const Event& event : read_events(*reader)) {
    if (kind_name(event.kind) == "?") FAIL("an event of no kind");
    ++count;
  }
  damaged = reader->damage().has_value();
  return count;
}

std::vector<std::vector<std::byte>> payloads_of(uint32_t tag, std::vector<uint32_t>& records) {
  const auto bytes = sample_trace();
  std::span<const std::byte> rest(bytes);
  rest = rest.subspan(header_bytes().size());
  std::vector<std::vector<std::byte>> payloads;
  while (rest.size() > trace::kEndMarkBytes) {
    const auto header = trace::decode_chunk_header(rest);
    REQUIRE(header);
    std::vector<std::byte> raw;
    REQUIRE(trace::decompress(rest.subspan(trace::kChunkHeaderBytes, header->stored_bytes),
                              header->raw_bytes, raw));
    if (header->tag == tag) {
      payloads.push_back(raw);
      records.push_back(header->records);
    }
    rest = rest.subspan(trace::kChunkHeaderBytes + header->stored_bytes);
  }
  return payloads;
}

}  // namespace

TEST_CASE("cut at every length") {
  const Original original;
  size_t last_events = 0;
  for (size_t length = 0; length < original.bytes.size(); ++length) {
    INFO("cut at " << length);
    const Outcome outcome = read_damaged(
        original, {original.bytes.begin(), original.bytes.begin() + static_cast<long>(length)});
    if (!outcome.opened) {
      CHECK(length < header_bytes().size());
      continue;
    }
    CHECK(outcome.events >= last_events);  // a longer file never has less
    last_events = outcome.events;
    if (outcome.sealed) CHECK(length >= original.bytes.size() - trace::kEndMarkBytes);
    if (outcome.events < original.events.size()) CHECK_FALSE(outcome.sealed);
  }
  CHECK(last_events == original.events.size());
}

TEST_CASE("the damage of a cut tail is told with its place") {
  auto bytes = sample_trace();
  const size_t end = header_bytes().size();
  bytes.resize(end + 40);
  auto reader = TraceReader::open_bytes(bytes, "cut.fst");
  REQUIRE(reader.ok());
  REQUIRE(reader->damage());
  CHECK(reader->damage()->code == ErrorCode::kDamaged);
  CHECK(reader->damage()->offset == end);
  CHECK(reader->damage()->text ==
        "cut.fst: the trace is cut or damaged at byte " + std::to_string(end));
}

TEST_CASE("every byte changed, one at a time: always noticed") {
  const Original original;
  for (size_t at = 0; at < original.bytes.size(); ++at) {
    for (const unsigned change : {0x01u, 0x80u, 0xffu}) {
      auto bytes = original.bytes;
      bytes[at] ^= static_cast<std::byte>(change);
      const Outcome outcome = read_damaged(original, std::move(bytes));
      if (outcome.opened && !outcome.damaged) FAIL("byte " << at << " is not protected");
    }
  }
}

TEST_CASE("bytes added, doubled or dropped in the middle") {
  const Original original;
  std::mt19937_64 random(3);
  for (int round = 0; round < 500; ++round) {
    auto bytes = original.bytes;
    const auto at = static_cast<long>(random() % bytes.size());
    const auto count = static_cast<long>(1 + random() % 64);
    const auto end = std::min<long>(at + count, static_cast<long>(bytes.size()));
    switch (random() % 3) {
      case 0:
        bytes.insert(bytes.begin() + at, static_cast<size_t>(count), std::byte{0});
        break;
      case 1:
        bytes.erase(bytes.begin() + at, bytes.begin() + end);
        break;
      default: {
        const std::vector<std::byte> twice(bytes.begin() + at, bytes.begin() + end);
        bytes.insert(bytes.begin() + at, twice.begin(), twice.end());
      }
    }
    const Outcome outcome = read_damaged(original, std::move(bytes));
    CHECK((!outcome.opened || outcome.damaged || !outcome.sealed));
  }
}

TEST_CASE("empty, foreign and newer files are named as such") {
  const auto code = [](std::vector<std::byte> bytes) {
    auto reader = TraceReader::open_bytes(std::move(bytes), "x");
    REQUIRE_FALSE(reader.ok());
    return reader.error().code;
  };
  CHECK(code({}) == ErrorCode::kForeign);
  CHECK(code(std::vector<std::byte>(100, std::byte{'x'})) == ErrorCode::kForeign);
  CHECK(code(std::vector<std::byte>(100000)) == ErrorCode::kForeign);
  auto newer = sample_trace();
  newer[8] = std::byte{trace::kTraceVersion + 1};
  CHECK(code(newer) == ErrorCode::kNewerVersion);
  auto cut = sample_trace();
  cut.resize(12);
  CHECK(code(cut) == ErrorCode::kDamaged);
}

TEST_CASE("lengths beyond their limits are refused before anything is allocated") {
  const auto with_header = [](uint32_t stored, uint32_t raw, uint32_t records, uint32_t tag) {
    ByteWriter chunk;
    chunk.fixed(tag);
    chunk.fixed(stored);
    chunk.fixed(raw);
    chunk.fixed(records);
    chunk.fixed(uint64_t{0});
    chunk.fixed(trace::checksum(chunk.data()));
    return trace::decode_chunk_header(chunk.data()).has_value();
  };
  CHECK(with_header(100, 100, 1, trace::kEventTag));
  CHECK_FALSE(with_header(UINT32_MAX, 100, 1, trace::kEventTag));
  CHECK_FALSE(with_header(100, UINT32_MAX, 1, trace::kEventTag));
  CHECK_FALSE(with_header(100, 100, trace::kMaxChunkEvents + 1, trace::kEventTag));
  CHECK_FALSE(with_header(100, 100, 1, 12345));
  // A frame that unpacks to more than its chunk says.
  std::vector<std::byte> raw;
  const auto bomb = trace::compress(std::vector<std::byte>(1 << 20));
  CHECK_FALSE(trace::decompress(bomb, 100, raw));
  CHECK(trace::decompress(bomb, 1 << 20, raw));
  auto two = bomb;
  two.insert(two.end(), bomb.begin(), bomb.end());
  CHECK_FALSE(trace::decompress(two, 1 << 20, raw));
}

TEST_CASE("stacks that claim to share a thousand frames each do not fill memory") {
  ByteWriter table;
  const uint64_t frames = trace::kMaxStackFrames;
  table.fixed(uint8_t{1});
  table.varint(0);
  table.varint(frames);
  table.varint(0);
  for (uint64_t i = 0; i < frames; ++i) table.signed_varint(1);
  const uint32_t records = 100'000;
  for (uint32_t id = 1; id < records; ++id) {
    table.fixed(uint8_t{1});
    table.varint(id);
    table.varint(frames);
    table.varint(frames);
  }
  auto reader = TraceReader::open_bytes(with_chunk(trace::kTableTag, records, table.data()), "x");
  REQUIRE(reader.ok());
  CHECK(reader->damage());
  CHECK(reader->tables().stacks.size() <= trace::kMaxChunkFrames / frames);
}

TEST_CASE("payloads changed under right checksums: no crash, no event of no kind") {
  std::mt19937_64 random(17);
  int noticed = 0;
  for (const uint32_t tag : {trace::kEventTag, trace::kTableTag, trace::kSealTag}) {
    std::vector<uint32_t> records;
    const auto payloads = payloads_of(tag, records);
    REQUIRE_FALSE(payloads.empty());
    for (int round = 0; round < 3000; ++round) {
      const size_t which = random() % payloads.size();
      auto raw = payloads[which];
      for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
        raw[random() % raw.size()] = static_cast<std::byte>(random());
      }
      if (random() % 4 == 0) raw.resize(random() % raw.size());
      bool damaged = false;
      CHECK(survive(with_chunk(tag, records[which], raw), damaged) <= records[which]);
      noticed += damaged ? 1 : 0;
    }
  }
  CHECK(noticed > 3000);
}

TEST_CASE("chunks whose numbers contradict each other") {
  std::vector<uint32_t> records;
  const auto payloads = payloads_of(trace::kEventTag, records);
  const auto chunk = trace::encode_chunk(trace::kEventTag, records[0], payloads[0]);
  bool damaged = false;
  auto bytes = with_chunk(trace::kEventTag, records[0], payloads[0]);
  CHECK(survive(bytes, damaged) == records[0]);
  CHECK_FALSE(damaged);
  bytes.insert(bytes.end(), chunk.begin(), chunk.end());  // the same events again
  CHECK(survive(bytes, damaged) == records[0]);
  CHECK(damaged);
  CHECK(survive(with_chunk(trace::kEventTag, records[0] - 1, payloads[0]), damaged) == 0);
  CHECK(damaged);
  // Sealed with another number of events.
  trace::Seal seal;
  seal.event_count = records[0] + 1;
  bytes = with_chunk(trace::kEventTag, records[0], payloads[0]);
  ByteWriter mark;
  mark.fixed(static_cast<uint64_t>(bytes.size()));
  mark.bytes({reinterpret_cast<const std::byte*>(trace::kEndMagic), sizeof trace::kEndMagic});
  const auto sealed = trace::encode_chunk(trace::kSealTag, 0, trace::encode_seal(seal));
  bytes.insert(bytes.end(), sealed.begin(), sealed.end());
  bytes.insert(bytes.end(), mark.data().begin(), mark.data().end());
  CHECK(survive(bytes, damaged) == records[0]);
  CHECK(damaged);
}

TEST_CASE("one damaged bit takes a chunk and what follows, not all that comes before") {
  trace::MemorySink sink;
  trace::ProcessInfo process;
  process.pid = 5;
  auto writer = trace::TraceWriter::start(sink, process);
  REQUIRE(writer.ok());
  constexpr uint64_t kEvents = 60'000;
  for (uint64_t i = 1; i <= kEvents; ++i) {
    Event event;
    event.kind = EventKind::device_alloc;
    event.pid = 5;
    event.seq = i;
    event.time_ns = i * 977;
    event.address = (i * 0x9e3779b97f4a7c15) >> 20;  // compresses badly
    REQUIRE(writer->add_event(event).ok());
  }
  REQUIRE(writer->seal(process, {}).ok());
  std::vector<std::byte> bytes = sink.bytes();
  bytes[bytes.size() / 2] ^= std::byte{1};
  auto reader = trace::TraceReader::open_bytes(bytes, "flipped");
  REQUIRE(reader.ok());
  uint64_t read = 0;
  for (Event event; reader->next(event);) ++read;
  REQUIRE(reader->damage());
  CHECK(read >= kEvents / 4);
  CHECK(read < kEvents);
}
