#include "model/command_json.h"

#include <cstdio>

namespace fragscope::model {
namespace {

// Appends `"name": value` pairs to an object in one line.
class Object {
 public:
  void number(const char* name, uint64_t value) { raw(name, std::to_string(value)); }
  void signed_number(const std::string& name, int64_t value) { raw(name, std::to_string(value)); }
  void text(const char* name, std::string_view value) {
    raw(name, "\"" + json_escape(value) + "\"");
  }
  void boolean(const char* name, bool value) { raw(name, value ? "true" : "false"); }
  void raw(const std::string& name, const std::string& value) {
    body_ += (body_.empty() ? "\"" : ", \"") + name + "\": " + value;
  }
  void optional(const char* name, const std::optional<uint64_t>& value) {
    raw(name, value ? std::to_string(*value) : "null");
  }
  std::string done() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

std::string pool_json(PoolId id) {
  return "[" + std::to_string(id.first) + ", " + std::to_string(id.second) + "]";
}

template <typename Items, typename Format>
std::string array_json(const Items& items, const char* separator, Format format) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : separator) + format(item);
  return text;
}

bool is_segment_call(TraceAction action) {
  return action == TraceAction::kSegmentAlloc || action == TraceAction::kSegmentFree ||
         action == TraceAction::kSegmentMap || action == TraceAction::kSegmentUnmap;
}

std::string entry_json(const CommandTarget::Entry& entry, bool with_device) {
  Object object;
  object.text("action", trace_action_name(entry.entry.action));
  if (with_device) object.number("device", static_cast<uint64_t>(entry.device));
  const bool oom = entry.entry.action == TraceAction::kOom;
  object.number(oom ? "device_free" : "address", entry.entry.address);
  object.number("size", entry.entry.size);
  object.number("stream", entry.entry.stream);
  return object.done();
}

bool is_request(CommandKind kind) {
  return kind == CommandKind::kAlloc || kind == CommandKind::kHostAlloc;
}

std::string host_call_json(const HostCall& call) {
  Object object;
  object.text("call", host_call_name(call.kind));
  object.number("address", call.address);
  if (call.bytes) object.number("size", *call.bytes);
  return object.done();
}

void add_command(Object& object, const CommandResult& result) {
  const Command& command = result.command;
  object.number("line", command.line);
  object.text("op", command_word(command.kind));
  object.number("device", static_cast<uint64_t>(command.device));
  if (!result.id.empty()) object.text("id", result.id);
  if (is_request(command.kind)) object.number("requested", command.size);
  if (command.stream) object.number("stream", *command.stream);
  if (!command.pool.is_default()) object.raw("pool", pool_json(command.pool));
  if (command.kind == CommandKind::kSettings) object.text("settings", command.settings);
}

std::string result_json(const CommandResult& result, bool with_device) {
  Object object;
  add_command(object, result);
  object.text("outcome", result.outcome);
  if (is_request(result.command.kind)) {
    object.optional("address", result.address);
    object.optional("block_size", result.block_size);
    object.boolean("oom", result.outcome == "oom" || result.outcome == "rejected");
  } else if (!result.id.empty()) {
    object.optional("address", result.address);
  }
  if (!result.message.empty()) object.text("message", result.message);
  if (is_host_command(result.command.kind)) {
    object.raw("host_calls", "[" + array_json(result.host_calls, ", ", host_call_json) + "]");
    if (result.trace.empty()) return object.done();
  }
  std::vector<CommandTarget::Entry> calls;
  for (const auto& entry : result.trace) {
    if (is_segment_call(entry.entry.action)) calls.push_back(entry);
  }
  const auto entry = [&](const CommandTarget::Entry& e) { return entry_json(e, with_device); };
  object.raw("segment_calls", "[" + array_json(calls, ", ", entry) + "]");
  object.raw("trace", "[" + array_json(result.trace, ", ", entry) + "]");
  return object.done();
}

std::string block_json(const BlockSnapshot& block) {
  static constexpr std::string_view kStates[] = {"active_allocated", "active_pending_free",
                                                 "inactive"};
  Object object;
  object.number("address", block.address);
  object.number("size", block.size);
  object.number("requested_size", block.requested_size);
  object.text("state", kStates[static_cast<size_t>(block.state)]);
  return object.done();
}

std::string segment_json(int device, const SegmentSnapshot& segment) {
  Object object;
  object.number("device", static_cast<uint64_t>(device));
  object.number("address", segment.address);
  object.number("total_size", segment.total_size);
  object.number("stream", segment.stream);
  object.text("segment_type", segment.kind == PoolKind::kSmall ? "small" : "large");
  object.raw("segment_pool_id", pool_json(segment.pool));
  object.boolean("is_expandable", segment.is_expandable);
  object.number("allocated_size", segment.allocated_size);
  object.number("active_size", segment.active_size);
  object.number("requested_size", segment.requested_size);
  object.raw("blocks", "[" + array_json(segment.blocks, ", ", block_json) + "]");
  return object.done();
}

std::string stats_json(const DeviceStats& stats, const VersionProfile& profile) {
  std::string text;
  visit_stats(stats, profile, [&](const std::string& name, int64_t value) {
    text += (text.empty() ? "\n" : ",\n");
    text += "\"" + name + "\": " + std::to_string(value);
  });
  return "{" + text + "\n}";
}

// null: the release has no such statistics.
std::string host_stats_json(const HostStats& stats, const VersionProfile& profile) {
  std::string text;
  visit_host_stats(stats, profile, [&](const std::string& name, std::optional<int64_t> value) {
    text += (text.empty() ? "\n" : ",\n");
    text += "\"" + name + "\": " + (value ? std::to_string(*value) : "null");
  });
  return text.empty() ? "null" : "{" + text + "\n}";
}

}  // namespace

std::string json_escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) {
      escaped += c;
    } else {
      char code[sizeof "\\u0000"];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      escaped += code;
    }
  }
  return escaped;
}

std::string list_result_json(const ListResult& result, const VersionProfile& profile,
                             const AnswerFacts& facts) {
  const bool several = result.devices.size() > 1;
  std::string text = "{\n";
  for (const auto& [name, value] : facts) {
    text += "\"" + name + "\": \"" + json_escape(value) + "\",\n";
  }
  text += "\"results\": [\n" +
          array_json(result.results, ",\n",
                     [&](const CommandResult& r) { return result_json(r, several); }) +
          "\n],\n\"segments\": [\n";
  std::string segments;
  for (const DeviceResult& device : result.devices) {
    for (const SegmentSnapshot& segment : device.segments) {
      segments += (segments.empty() ? "" : ",\n") + segment_json(device.device, segment);
    }
  }
  text += segments + "\n],\n\"stats\": " + stats_json(result.devices[0].stats, profile);
  if (several) {
    text += ",\n\"stats_by_device\": [\n" +
            array_json(result.devices, ",\n",
                       [&](const DeviceResult& d) { return stats_json(d.stats, profile); }) +
            "\n]";
  }
  if (result.undefined_from_line) {
    text += ",\n\"undefined_from_line\": " + std::to_string(*result.undefined_from_line);
  }
  if (result.host) text += ",\n\"host_stats\": " + host_stats_json(*result.host, profile);
  return text + "\n}\n";
}

}  // namespace fragscope::model
