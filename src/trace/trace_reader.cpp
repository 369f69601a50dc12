#include "trace/trace_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/byte_cursor.h"
#include "trace/byte_source.h"
#include "trace/checksum.h"
#include "trace/compression.h"
#include "trace/event_columns.h"
#include "trace/format.h"
#include "trace/table_records.h"

namespace fragscope::trace {
namespace {

constexpr uint32_t kBatchEvents = 256;  // 24 KiB: written and consumed in the first-level cache

}  // namespace

struct TraceReader::State {
  State(ByteSource bytes, std::string file_name)
      : source(std::move(bytes)), name(std::move(file_name)) {}

  ByteSource source;
  std::string name;
  ProcessInfo process;
  TraceTables tables;
  std::optional<Error> damage;

  uint64_t data_begin = 0;
  uint64_t data_end = 0;    // of the chunks that may be whole
  uint64_t tables_end = 0;  // TABL chunks before it are in `tables`
  uint64_t next_chunk = 0;
  uint64_t last_seq = 0;
  uint64_t counted = 0;        // events of the chunks before next_chunk
  std::vector<std::byte> raw;  // payload of the current chunk
  EventDecoder events;
  uint32_t events_taken = 0;
  std::array<Event, kBatchEvents> batch;
  EventDecoder::Held held;      // of `batch`
  std::span<const Event> left;  // of `batch`

  // The first damage of the file counts; later ones are its consequences.
  void note_damage(uint64_t offset, const std::string& what) {
    if (damage && damage->offset.value_or(0) <= offset) return;
    damage = Error{ErrorCode::kDamaged, name + ": " + what + " at byte " + std::to_string(offset),
                   offset};
  }

  Status open();
  bool find_seal();
  void scan();
  std::optional<ChunkHeader> header_at(uint64_t offset);
  bool payload_at(uint64_t offset, const ChunkHeader& header, std::vector<std::byte>& out);
  bool take_seal(uint64_t offset, const ChunkHeader& header);
  bool take_tables(uint64_t offset, const ChunkHeader& header, std::vector<std::byte>& scratch);
  bool take_events(uint64_t offset, const ChunkHeader& header);
  bool next_event_chunk();
  void load_tables();
  bool end_of_events();
};

Status TraceReader::State::open() {
  auto size = check_file_header(source.read(0, kHeaderFixedBytes), name);
  if (!size) return size.error();
  const auto header = source.read(0, *size);
  if (header.size() < *size) {
    return Error{ErrorCode::kDamaged, name + ": the trace ends within its header", header.size()};
  }
  auto decoded = decode_file_header(header, name);
  if (!decoded) return decoded.error();
  process = std::move(decoded).value();
  data_begin = next_chunk = tables_end = *size;
  data_end = source.size();
  if (!find_seal()) scan();
  return Done{};
}

// By the end mark, without reading what is before.
bool TraceReader::State::find_seal() {
  if (source.size() < data_begin + kChunkHeaderBytes + kEndMarkBytes) return false;
  const uint64_t mark = source.size() - kEndMarkBytes;
  const auto bytes = source.read(mark, kEndMarkBytes);
  if (bytes.size() != kEndMarkBytes) return false;
  if (std::memcmp(bytes.data() + 8, kEndMagic, sizeof kEndMagic) != 0) return false;
  const auto offset = ByteReader(bytes).fixed<uint64_t>();
  if (offset < data_begin || offset >= mark) return false;
  const auto header = header_at(offset);
  if (!header || header->tag != kSealTag) return false;
  if (offset + kChunkHeaderBytes + header->stored_bytes != mark) return false;
  if (!take_seal(offset, *header)) return false;
  data_end = offset;
  return true;
}

// Of a trace without a right end: chunk headers from the front, to count events and to find out
// where it was cut.
void TraceReader::State::scan() {
  uint64_t at = data_begin;
  while (at < source.size()) {
    const auto header = header_at(at);
    const uint64_t next = header ? at + kChunkHeaderBytes + header->stored_bytes : 0;
    if (!header || next > source.size()) {
      note_damage(at, "the trace is cut or damaged");
      break;
    }
    if (header->tag == kSealTag) {
      const bool right = take_seal(at, *header);
      note_damage(right ? next : at, right ? "wrong end mark" : "damaged end of the trace");
      break;
    }
    if (header->tag == kEventTag) process.event_count += header->records;
    at = next;
  }
  data_end = at;
  load_tables();
}

std::optional<ChunkHeader> TraceReader::State::header_at(uint64_t offset) {
  return decode_chunk_header(source.read(offset, kChunkHeaderBytes));
}

bool TraceReader::State::payload_at(uint64_t offset, const ChunkHeader& header,
                                    std::vector<std::byte>& out) {
  const auto stored = source.read(offset + kChunkHeaderBytes, header.stored_bytes);
  return stored.size() == header.stored_bytes && checksum(stored) == header.checksum &&
         decompress(stored, header.raw_bytes, out);
}

bool TraceReader::State::take_seal(uint64_t offset, const ChunkHeader& header) {
  std::vector<std::byte> payload;
  if (!payload_at(offset, header, payload)) return false;
  auto seal = decode_seal(payload);
  if (!seal) return false;
  process.exit = seal->exit;
  process.event_count = seal->event_count;
  process.dropped_events = seal->dropped_events;
  process.torn_records = seal->torn_records;
  process.properties = std::move(seal->properties);
  process.sealed = true;
  tables.api_calls = std::move(seal->api_calls);
  return true;
}

// Every TABL chunk is taken once, whoever comes to it first.
bool TraceReader::State::take_tables(uint64_t offset, const ChunkHeader& header,
                                     std::vector<std::byte>& scratch) {
  if (offset < tables_end) return true;
  auto properties = process.properties;
  if (!payload_at(offset, header, scratch) ||
      !decode_table(scratch, header.records, tables, properties)) {
    note_damage(offset, "damaged chunk");
    return false;
  }
  if (!process.sealed) process.properties = std::move(properties);
  tables_end = offset + kChunkHeaderBytes + header.stored_bytes;
  return true;
}

bool TraceReader::State::take_events(uint64_t offset, const ChunkHeader& header) {
  if (!payload_at(offset, header, raw) || !events.parse(raw, process.pid) ||
      events.count() != header.records || (events.count() != 0 && events.first_seq() <= last_seq)) {
    note_damage(offset, "damaged chunk");
    return false;
  }
  events_taken = 0;
  if (events.count() != 0) last_seq = events.first_seq() + events.count() - 1;
  process.log_position = std::max(process.log_position, events.log_position());
  return true;
}

// False at the end or at damage; after that again and again.
bool TraceReader::State::next_event_chunk() {
  while (next_chunk < data_end) {
    const uint64_t offset = next_chunk;
    const auto header = header_at(offset);
    const uint64_t next = header ? offset + kChunkHeaderBytes + header->stored_bytes : 0;
    bool good = header && next <= data_end && header->tag != kSealTag;
    if (!good) note_damage(offset, "damaged chunk");
    const bool is_events = good && header->tag == kEventTag;
    if (good) good = is_events ? take_events(offset, *header) : take_tables(offset, *header, raw);
    if (!good) {
      data_end = offset;
      break;
    }
    next_chunk = next;
    if (!is_events || events.count() == 0) continue;
    counted += events.count();
    return true;
  }
  return end_of_events();
}

// Always false. Corrects the count of what nobody sealed; finds what is missing of what was.
bool TraceReader::State::end_of_events() {
  if (!process.sealed) {
    process.event_count = counted;
  } else if (counted != process.event_count) {
    note_damage(data_end, "events are missing");
  }
  return false;
}

void TraceReader::State::load_tables() {
  std::vector<std::byte> scratch;
  uint64_t at = data_begin;
  while (at < data_end) {
    const auto header = header_at(at);
    if (!header) return;  // the events say so when they come to it
    if (header->tag == kTableTag && !take_tables(at, *header, scratch)) return;
    at += kChunkHeaderBytes + header->stored_bytes;
  }
}

TraceReader::TraceReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
TraceReader::TraceReader(TraceReader&&) noexcept = default;
TraceReader& TraceReader::operator=(TraceReader&&) noexcept = default;
TraceReader::~TraceReader() = default;

Result<TraceReader> TraceReader::open_file(const std::string& path) {
  auto source = ByteSource::open_file(path);
  if (!source) return source.error();
  TraceReader reader(std::make_unique<State>(std::move(source).value(), path));
  if (Status status = reader.state_->open(); !status) return status.error();
  return reader;
}

Result<TraceReader> TraceReader::open_bytes(std::vector<std::byte> bytes, std::string name) {
  TraceReader reader(
      std::make_unique<State>(ByteSource::of_bytes(std::move(bytes)), std::move(name)));
  if (Status status = reader.state_->open(); !status) return status.error();
  return reader;
}

std::span<const Event> TraceReader::next_batch() {
  State& s = *state_;
  if (!s.left.empty()) return std::exchange(s.left, {});
  if (s.events_taken == s.events.count() && !s.next_event_chunk()) return {};
  const uint32_t count = std::min(kBatchEvents, s.events.count() - s.events_taken);
  s.events.fill(s.events_taken, count, s.batch, s.held);
  s.events_taken += count;
  return {s.batch.data(), count};
}

bool TraceReader::next(Event& event) {
  if (state_->left.empty()) {
    state_->left = next_batch();
    if (state_->left.empty()) return false;
  }
  event = state_->left.front();
  state_->left = state_->left.subspan(1);
  return true;
}

void TraceReader::rewind() {
  State& s = *state_;
  s.next_chunk = s.data_begin;
  s.last_seq = 0;
  s.counted = 0;
  s.events = EventDecoder();
  s.events_taken = 0;
  s.left = {};
}

const ProcessInfo& TraceReader::process() const { return state_->process; }
const TraceTables& TraceReader::tables() const { return state_->tables; }
void TraceReader::load_tables() { state_->load_tables(); }
const std::optional<Error>& TraceReader::damage() const { return state_->damage; }

}  // namespace fragscope::trace
