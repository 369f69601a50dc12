#include "capture/log_to_trace.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <vector>

#include "capture/build_id.h"

namespace fragscope::capture {
namespace {

// A hexadecimal number and the character behind it.
bool take_hex(std::string_view& text, char end, uint64_t& out) {
  const size_t length = text.find(end);
  if (length == std::string_view::npos) return false;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + length, out, 16);
  if (error != std::errc() || stop != text.data() + length) return false;
  text.remove_prefix(length + 1);
  return true;
}

// What only events refer to.
bool is_of_events(log::BlobKind kind) {
  return kind == log::BlobKind::stack || kind == log::BlobKind::text ||
         kind == log::BlobKind::python_frame || kind == log::BlobKind::module;
}

// "0:4711 90000:12": so many events are missing after that one.
std::string gaps_text(const std::vector<log::LogReader::Gap>& gaps) {
  std::string text;
  for (const auto& [after_seq, events] : gaps) {
    if (!text.empty()) text += ' ';
    text += std::to_string(after_seq) + ":" + std::to_string(events);
  }
  return text;
}

}  // namespace

std::optional<trace::Module> parse_module(std::string_view text) {
  trace::Module module;
  if (!take_hex(text, '-', module.start) || !take_hex(text, ' ', module.end) ||
      !take_hex(text, ' ', module.file_offset) || module.end < module.start || text.empty()) {
    return std::nullopt;
  }
  if (text.front() == '=') {
    const size_t length = text.find(' ');
    if (length == std::string_view::npos) return std::nullopt;
    module.build_id = text.substr(1, length - 1);
    text.remove_prefix(length + 1);
  }
  module.path = text;
  return module;
}

LogToTrace::LogToTrace(const log::LogReader& reader, trace::TraceWriter& writer,
                       uint64_t files_unchanged_since_ns)
    : reader_(reader), writer_(writer), files_unchanged_since_ns_(files_unchanged_since_ns) {}

void LogToTrace::know_api_names(const std::unordered_map<uint16_t, std::string>& names) {
  api_names_.insert(names.begin(), names.end());
}

void LogToTrace::keep(const Status& status) {
  if (!status && !error_) error_ = status.error();
}

void LogToTrace::on_event(const Event& event) {
  if (error_) return;
  if (stopped_) {
    ++unwritten_events_;
    return;
  }
  writer_.set_log_position(reader_.position() + 1);
  keep(writer_.add_event(event));
}

void LogToTrace::on_blob(log::BlobKind kind, uint32_t id, std::span<const std::byte> bytes) {
  if (error_ || (stopped_ && is_of_events(kind))) return;
  // Blobs of a ring have positions of their own.
  writer_.set_log_position(reader_.position() + (reader_.has_ring() ? 0 : 1));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  switch (kind) {
    case log::BlobKind::stack:
      return add_stack(id, bytes);
    case log::BlobKind::module:
      return add_module(text);
    case log::BlobKind::text:
      return keep(writer_.add_text(id, text));
    case log::BlobKind::api_name:
      if (id > UINT16_MAX) return;
      api_names_.emplace(static_cast<uint16_t>(id), text);
      return keep(writer_.add_api_name(static_cast<uint16_t>(id), text));
    case log::BlobKind::property:
      return add_property(text);
    case log::BlobKind::python_frame:
      return add_python_frame(id, text);
  }
}

void LogToTrace::add_stack(uint32_t id, std::span<const std::byte> bytes) {
  std::vector<uint64_t> frames(bytes.size() / sizeof(uint64_t));
  std::memcpy(frames.data(), bytes.data(), frames.size() * sizeof(uint64_t));
  keep(writer_.add_stack(id, frames));
}

void LogToTrace::add_module(std::string_view text) {
  auto module = parse_module(text);
  if (!module) return;
  module->first_seq = reader_.events() + 1;
  if (module->build_id.empty()) {
    module->build_id = read_build_id(module->path, files_unchanged_since_ns_);
  }
  keep(writer_.add_module(*module));
}

void LogToTrace::add_python_frame(uint32_t id, std::string_view text) {
  trace::PythonFrame frame;
  std::string_view parts[4];
  for (size_t i = 0; i < 4; ++i) {
    const size_t end = i == 3 ? text.size() : text.find('\0');
    if (end == std::string_view::npos) return;
    parts[i] = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const auto number = [](std::string_view digits, int32_t& out) {
    std::from_chars(digits.data(), digits.data() + digits.size(), out);
  };
  number(parts[0], frame.line);
  number(parts[1], frame.first_line);
  frame.function = parts[2];
  frame.file = parts[3];
  keep(writer_.add_python_frame(id, frame));
}

void LogToTrace::add_property(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string_view::npos) return;
  keep(writer_.add_property(text.substr(0, equals), text.substr(equals + 1)));
}

Status LogToTrace::seal(log::LogReader& reader, trace::ProcessExit exit) {
  if (error_) return *error_;
  const auto state = reader.state();
  const auto calls = reader.api_calls();
  auto process = process_of(reader);
  if (!state) return state.error();
  if (!calls) return calls.error();
  if (!process) return process.error();
  process->exit = exit;
  process->dropped_events = state->dropped_events;
  process->torn_records = reader.torn_records();
  process->properties["log.finished"] = state->finished ? "1" : "0";
  if (const uint64_t skipped = reader.skipped_events(); skipped != 0) {
    process->properties["log.skipped_events"] = std::to_string(skipped);
  }
  if (const uint64_t overwritten = reader.overwritten_events(); overwritten != 0) {
    process->properties["log.overwritten_events"] = std::to_string(overwritten);
    process->properties["log.gaps"] = gaps_text(reader.gaps());
  }
  if (unwritten_events_ != 0) {
    process->properties["trace.unwritten_events"] = std::to_string(unwritten_events_);
  }
  if (state->grow_errno != 0) {
    process->properties["log.grow_errno"] = std::to_string(state->grow_errno);
  }
  std::map<std::string, uint64_t> named_calls;
  for (const auto& [api, count] : *calls) {
    const auto name = api_names_.find(api);
    named_calls[name == api_names_.end() ? "#" + std::to_string(api) : name->second] += count;
  }
  return writer_.seal(*process, named_calls);
}

Result<trace::ProcessInfo> process_of(log::LogReader& reader) {
  const auto identity = reader.identity();
  if (!identity) return identity.error();
  trace::ProcessInfo process;
  process.pid = identity->pid;
  process.start_ticks = identity->start_ticks;
  process.realtime_ns = identity->realtime_ns;
  process.monotonic_ns = identity->monotonic_ns;
  process.program = identity->program;
  process.shim_version = identity->shim_version;
  return process;
}

}  // namespace fragscope::capture
