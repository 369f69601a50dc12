// Traces -> text (text_events.h).
#include <algorithm>
#include <map>

#include "event/event_names.h"
#include "event/frame.h"
#include "trace/text_events.h"
#include "trace/text_tokens.h"

namespace fragscope::trace {
namespace {

template <typename Map, typename Id>
std::string name_or_id(const Map& names, Id id) {
  const auto found = names.find(id);
  return found == names.end() ? "#" + std::to_string(id) : quote(found->second);
}

void field(std::string& line, const char* name, const std::string& value) {
  line += ' ';
  line += name;
  line += '=';
  line += value;
}

void known(std::string& line, const char* name, uint64_t value) {
  if (value != kUnknown) field(line, name, std::to_string(value));
}

// Names that stand for one id only; of the others a reader could not tell which was meant.
template <typename Map>
Map unique_names(const Map& names) {
  std::map<std::string, int> uses;
  for (const auto& entry : names) ++uses[entry.second];
  Map unique;
  for (const auto& [id, name] : names) {
    if (id != 0 && uses[name] == 1) unique[id] = name;
  }
  return unique;
}

template <typename Map>
auto sorted(const Map& map) {
  return std::map<typename Map::key_type, typename Map::mapped_type>(map.begin(), map.end());
}

std::string exit_text(const ProcessExit& exit) {
  switch (exit.kind) {
    case ExitKind::running:
      return "running";
    case ExitKind::exited:
      return "exited:" + std::to_string(exit.code);
    case ExitKind::signaled:
      return "signaled:" + std::to_string(exit.code);
    case ExitKind::vanished:
      break;
  }
  return "vanished";
}

std::string process_line(const ProcessInfo& process) {
  std::string line = "process pid=" + std::to_string(process.pid);
  field(line, "start_ticks", std::to_string(process.start_ticks));
  field(line, "realtime_ns", std::to_string(process.realtime_ns));
  field(line, "monotonic_ns", std::to_string(process.monotonic_ns));
  field(line, "program", quote(process.program));
  field(line, "shim_version", quote(process.shim_version));
  field(line, "sealed", process.sealed ? "1" : "0");
  if (process.sealed) {
    field(line, "exit", exit_text(process.exit));
    field(line, "dropped", std::to_string(process.dropped_events));
    field(line, "torn", std::to_string(process.torn_records));
  }
  return line + "\n";
}

std::string table_lines(const TraceTables& tables) {
  std::string out;
  for (const auto& [id, name] : sorted(tables.api_names)) {
    out += "api " + std::to_string(id) + ' ' + quote(name) + '\n';
  }
  for (const auto& [id, text] : sorted(tables.texts)) {
    out += "text " + std::to_string(id) + ' ' + quote(text) + '\n';
  }
  for (const auto& [id, frame] : sorted(tables.python_frames)) {
    out += "python " + std::to_string(id) + ' ' + quote(frame.function) + ' ' + quote(frame.file) +
           " line=" + std::to_string(frame.line) +
           " first_line=" + std::to_string(frame.first_line) + '\n';
  }
  for (const auto& [id, frames] : sorted(tables.stacks)) {
    out += "stack " + std::to_string(id);
    for (const uint64_t frame : frames) {
      out += is_python_frame(frame) ? " py" + std::to_string(python_frame_id(frame))
                                    : ' ' + hex(frame);
    }
    out += '\n';
  }
  for (const Module& module : tables.modules) {
    out += "module " + hex(module.start) + '-' + hex(module.end) + ' ' + hex(module.file_offset) +
           ' ' + quote(module.path);
    if (!module.build_id.empty()) out += " build_id=" + quote(module.build_id);
    out += " seq=" + std::to_string(module.first_seq) + '\n';
  }
  for (const auto& [name, calls] : tables.api_calls) {
    out += "calls " + quote(name) + '=' + std::to_string(calls) + '\n';
  }
  return out;
}

}  // namespace

std::string format_event(const Event& event, const TraceTables& tables) {
  std::string line = std::to_string(event.seq) + " t=" + std::to_string(event.time_ns);
  if (event.tid != 0) field(line, "tid", std::to_string(event.tid));
  line += ' ';
  line += kind_name(event.kind);
  if (event.api != kNoApi) field(line, "api", name_or_id(tables.api_names, event.api));
  if (event.device != kUnknownDevice) field(line, "device", std::to_string(event.device));
  if (event.stream != kUnknown) {
    field(line, "stream", event.stream < 65536 ? std::to_string(event.stream) : hex(event.stream));
  }
  if (event.address != kUnknown) field(line, "address", hex(event.address));
  known(line, "size", event.size);
  known(line, "requested", event.requested);
  if (event.result == kResultPending) {
    field(line, "result", "pending");
  } else if (event.result != 0) {
    field(line, "result", std::to_string(event.result));
  }
  known(line, "aux", event.aux);
  known(line, "aux2", event.aux2);
  if (event.stack != kNoStack) field(line, "stack", std::to_string(event.stack));
  if (event.flags != 0) field(line, "flags", hex(event.flags));
  if ((event.flags & kFlagPool) && plane_of(event.kind) == Plane::block) {
    const PoolName pool = unpack_pool(event.text);
    field(line, "pool", std::to_string(pool.first) + ',' + std::to_string(pool.second));
  } else if (event.text != 0) {
    field(line, "text", name_or_id(tables.texts, event.text));
  }
  return line;
}

std::string format_trace(TraceReader& reader) {
  reader.load_tables();
  reader.rewind();
  std::string out = process_line(reader.process());
  for (const auto& [key, value] : reader.process().properties) {
    out += "property " + quote(key) + '=' + quote(value) + '\n';
  }
  out += table_lines(reader.tables());
  TraceTables names;
  names.api_names = unique_names(reader.tables().api_names);
  names.texts = unique_names(reader.tables().texts);
  for (auto batch = reader.next_batch(); !batch.empty(); batch = reader.next_batch()) {
    for (const Event& event : batch) out += format_event(event, names) + '\n';
  }
  return out;
}

}  // namespace fragscope::trace
