#include "trace/trace_writer.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "trace/event_columns.h"
#include "trace/format.h"
#include "trace/table_records.h"

namespace fragscope::trace {
namespace {

// Events of a chunk, at most kMaxChunkEvents: damage takes a whole chunk, and what comes after it.
// A quarter of the most costs 3 % of the bytes of a trace with stacks.
constexpr size_t kChunkEvents = 16384;
static_assert(kChunkEvents <= kMaxChunkEvents);

// A chunk of tables goes out when it gets this large; well below the limits of the format.
constexpr uint64_t kTableFlushBytes = 1 << 20;
constexpr uint64_t kTableFlushFrames = kMaxChunkFrames / 2;

}  // namespace

Status MemorySink::write(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  return Done{};
}

struct TraceWriter::State {
  ByteSink* sink = nullptr;
  ProcessInfo process;
  std::vector<Event> events;
  TableEncoder tables;
  EventEncoder encoder;
  std::unordered_set<uint32_t> stacks, texts, api_names, python_frames;
  uint64_t bytes_written = 0;
  uint64_t events_written = 0;
  uint64_t last_seq = 0;
  uint64_t log_position = 0;
  uint64_t written_log_position = 0;
  bool sealed = false;
  std::optional<Error> failed;

  Status write(std::span<const std::byte> bytes) {
    if (Status status = sink->write(bytes); !status) {
      failed = status.error();
      return status;
    }
    bytes_written += bytes.size();
    return Done{};
  }

  Status write_chunk(uint32_t tag, uint32_t records, std::span<const std::byte> raw) {
    const std::vector<std::byte> chunk = encode_chunk(tag, records, raw);
    if (!chunk.empty()) return write(chunk);
    failed = Error{ErrorCode::kInternal, "a chunk of the trace exceeds the limits of the format"};
    return *failed;
  }

  Status usable() {
    if (failed) return *failed;
    if (!sealed) return Done{};
    return Error{ErrorCode::kInternal, "the trace is sealed"};
  }

  Status flush_tables() {
    if (tables.records() == 0) return Done{};
    Status status = write_chunk(kTableTag, tables.records(), tables.bytes());
    tables.clear();
    return status;
  }

  Status flush_events() {
    if (events.empty() && log_position == written_log_position) return Done{};
    ByteWriter raw;
    encoder.encode(events, log_position, raw);
    Status status = write_chunk(kEventTag, static_cast<uint32_t>(events.size()), raw.data());
    if (!status) return status;
    events_written += events.size();
    events.clear();
    written_log_position = log_position;
    return Done{};
  }

  Status flush() {
    if (Status status = flush_tables(); !status) return status;
    return flush_events();
  }

  Status flush_large_tables() {
    const bool large =
        tables.bytes().size() > kTableFlushBytes || tables.frames() > kTableFlushFrames;
    return large ? flush() : Status(Done{});
  }
};

TraceWriter::TraceWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
TraceWriter::TraceWriter(TraceWriter&&) noexcept = default;
TraceWriter& TraceWriter::operator=(TraceWriter&&) noexcept = default;
TraceWriter::~TraceWriter() = default;

Result<TraceWriter> TraceWriter::start(ByteSink& sink, const ProcessInfo& process) {
  auto state = std::make_unique<State>();
  state->sink = &sink;
  state->process = process;
  if (Status status = state->write(encode_file_header(process)); !status) return status.error();
  TraceWriter writer(std::move(state));
  for (const auto& [key, value] : process.properties) {
    if (Status status = writer.add_property(key, value); !status) return status.error();
  }
  return writer;
}

Status TraceWriter::add_event(const Event& event) {
  State& s = *state_;
  if (Status status = s.usable(); !status) return status;
  if (event.pid != s.process.pid || event.seq <= s.last_seq) {
    return Error{ErrorCode::kInvalidArgument, "event " + std::to_string(event.seq) +
                                                  " of process " + std::to_string(event.pid) +
                                                  " is out of order in this trace"};
  }
  if (event.seq != s.last_seq + 1 && !s.events.empty()) {
    if (Status status = s.flush(); !status) return status;
  }
  s.last_seq = event.seq;
  s.events.push_back(event);
  return s.events.size() == kChunkEvents ? s.flush() : Status(Done{});
}

Status TraceWriter::add_stack(uint32_t id, std::span<const uint64_t> frames) {
  if (Status status = state_->usable(); !status) return status;
  if (!state_->stacks.insert(id).second) return Done{};
  state_->tables.stack(id, frames.first(std::min<size_t>(frames.size(), kMaxStackFrames)));
  return state_->flush_large_tables();
}

Status TraceWriter::add_text(uint32_t id, std::string_view text) {
  if (Status status = state_->usable(); !status) return status;
  if (!state_->texts.insert(id).second) return Done{};
  state_->tables.text(id, text.substr(0, kMaxText));
  return state_->flush_large_tables();
}

Status TraceWriter::add_api_name(uint16_t id, std::string_view name) {
  if (Status status = state_->usable(); !status) return status;
  if (!state_->api_names.insert(id).second) return Done{};
  state_->tables.api_name(id, name.substr(0, kMaxText));
  return state_->flush_large_tables();
}

Status TraceWriter::add_python_frame(uint32_t id, const PythonFrame& frame) {
  if (Status status = state_->usable(); !status) return status;
  if (!state_->python_frames.insert(id).second) return Done{};
  PythonFrame cut = frame;
  cut.function = cut.function.substr(0, kMaxText);
  cut.file = cut.file.substr(0, kMaxText);
  state_->tables.python_frame(id, cut);
  return state_->flush_large_tables();
}

Status TraceWriter::add_module(const Module& module) {
  if (Status status = state_->usable(); !status) return status;
  if (module.end < module.start) {
    return Error{ErrorCode::kInvalidArgument, "module " + module.path + " ends before it starts"};
  }
  Module cut = module;
  cut.path.resize(std::min<size_t>(cut.path.size(), kMaxText));
  cut.build_id.resize(std::min<size_t>(cut.build_id.size(), kMaxText));
  state_->tables.module(cut);
  return state_->flush_large_tables();
}

Status TraceWriter::add_property(std::string_view key, std::string_view value) {
  if (Status status = state_->usable(); !status) return status;
  key = key.substr(0, kMaxText);
  value = value.substr(0, kMaxText);
  state_->process.properties[std::string(key)] = value;
  state_->tables.property(key, value);
  return state_->flush_large_tables();
}

void TraceWriter::set_log_position(uint64_t position) { state_->log_position = position; }

uint64_t TraceWriter::unflushed() const { return state_->events.size() + state_->tables.records(); }

Status TraceWriter::flush() {
  if (Status status = state_->usable(); !status) return status;
  return state_->flush();
}

Status TraceWriter::seal(const ProcessInfo& process,
                         const std::map<std::string, uint64_t>& api_calls) {
  State& s = *state_;
  if (Status status = flush(); !status) return status;
  Seal seal;
  seal.exit = process.exit;
  seal.event_count = s.events_written;
  seal.dropped_events = process.dropped_events;
  seal.torn_records = process.torn_records;
  seal.properties = s.process.properties;
  seal.properties.insert(process.properties.begin(), process.properties.end());
  seal.api_calls = api_calls;
  const uint64_t seal_offset = s.bytes_written;
  if (Status status = s.write_chunk(kSealTag, 0, encode_seal(seal)); !status) return status;
  ByteWriter end_mark;
  end_mark.fixed(seal_offset);
  end_mark.bytes({reinterpret_cast<const std::byte*>(kEndMagic), sizeof kEndMagic});
  if (Status status = s.write(end_mark.data()); !status) return status;
  s.sealed = true;
  return Done{};
}

}  // namespace fragscope::trace
