#include "tools/event_json.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "event/event_names.h"

namespace fragscope::tools {
namespace {

void append_number(std::string& out, std::string_view key, uint64_t value) {
  auto to = std::back_inserter(out);
  if (value == kUnknown) {
    fmt::format_to(to, ",\"{}\":null", key);
  } else {
    fmt::format_to(to, ",\"{}\":{}", key, value);
  }
}

std::string_view source_name(uint32_t flags) {
  if (flags & kFlagSourceAdaptor) return "adaptor";
  if (flags & kFlagSourceReport) return "report";
  if (flags & kFlagSourceApi) return "api";
  if (flags & kFlagSourceSnapshot) return "snapshot";
  return {};
}

void append_optional(std::string& out, std::string_view key, uint64_t value) {
  if (value != kUnknown) append_number(out, key, value);
}

// The names of `aux` and `aux2` of the driver plane (event_kinds.def); empty: nothing is in them.
struct FieldNames {
  EventKind kind;
  std::string_view aux;
  std::string_view aux2;
};
constexpr FieldNames kFieldNames[] = {
    {EventKind::device_alloc, "context", ""},
    {EventKind::managed_alloc, "context", "flags"},
    {EventKind::pinned_alloc, "context", "flags"},
    {EventKind::pinned_register, "context", "flags"},
    {EventKind::array_alloc, "context", "flags"},
    {EventKind::async_alloc, "pool", ""},
    {EventKind::pool_set, "attribute", "value"},
    {EventKind::phys_create, "location_type", "handle_types"},
    {EventKind::phys_retain, "mapped_at", ""},
    {EventKind::phys_export, "handle_type", ""},
    {EventKind::phys_import, "handle_type", ""},
    {EventKind::va_map, "handle", ""},
    {EventKind::va_access, "access", ""},
    {EventKind::array_map, "handle", "entries"},
    {EventKind::ipc_export, "key", ""},
    {EventKind::ipc_open, "key", "flags"},
    {EventKind::external_import, "handle_type", ""},
    {EventKind::external_map, "external", ""},
    {EventKind::multicast_bind, "bound", ""},
    {EventKind::graph_alloc, "graph", "node"},
    {EventKind::graph_free, "graph", "node"},
    {EventKind::graph_instantiate, "graph", ""},
    {EventKind::memory_info, "free", ""},
    {EventKind::context_create, "", "flags"},
    {EventKind::stream_create, "", "flags"},
};

void append_driver_fields(const Event& event, std::string& out) {
  for (const FieldNames& names : kFieldNames) {
    if (names.kind != event.kind) continue;
    if (!names.aux.empty()) append_optional(out, names.aux, event.aux);
    if (!names.aux2.empty()) append_optional(out, names.aux2, event.aux2);
    return;
  }
}

void append_what_applies(const Event& event, const trace::TraceTables& tables, std::string& out) {
  switch (event.kind) {
    case EventKind::alloc:
    case EventKind::free_requested:
    case EventKind::free_completed:
      append_optional(out, "allocated", event.aux);
      append_optional(out, "reserved", event.aux2);
      break;
    case EventKind::oom:
      append_optional(out, "device_free", event.aux);
      break;
    default:
      append_driver_fields(event, out);
      break;
  }
  const std::string_view source = source_name(event.flags);
  if (!source.empty()) fmt::format_to(std::back_inserter(out), ",\"source\":\"{}\"", source);
  if (event.flags & kFlagServed) out += ",\"served\":true";
  if (event.flags & kFlagRefused) out += ",\"refused\":true";
  if (plane_of(event.kind) == Plane::block && (event.flags & kFlagPool)) {
    const PoolName pool = unpack_pool(event.text);
    fmt::format_to(std::back_inserter(out), ",\"pool\":[{},{}]", pool.first, pool.second);
  }
  if (plane_of(event.kind) == Plane::block && (event.flags & kFlagAtStart)) {
    out += ",\"at_start\":true";
  }
  if (plane_of(event.kind) == Plane::block && event.kind != EventKind::annotate) return;
  if (event.flags & kFlagStackTruncated) out += ",\"stack_truncated\":true";
  const auto text = tables.texts.find(event.text);
  if (event.text != 0 && text != tables.texts.end()) {
    out += ",\"text\":" + json_string(text->second);
  }
}

void append_frame(std::string& out, const symbolize::Frame& frame) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? std::string("null") : json_string(text);
  };
  fmt::format_to(
      std::back_inserter(out),
      "{{\"address\":{},\"module\":{},\"offset\":{},\"function\":{},\"file\":{},"
      "\"line\":{}{}{}}}",
      frame.address == 0 ? "null" : std::to_string(frame.address), text_or_null(frame.module),
      frame.module.empty() ? "null" : std::to_string(frame.offset), text_or_null(frame.function),
      text_or_null(frame.file), frame.line == 0 ? "null" : std::to_string(frame.line),
      frame.python ? ",\"python\":true" : "", frame.inlined ? ",\"inlined\":true" : "");
}

}  // namespace

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void EventJson::append(const Event& event, const trace::TraceTables& tables, std::string& out) {
  auto to = std::back_inserter(out);
  fmt::format_to(to, "{{\"seq\":{},\"t_ns\":{}", event.seq, event.time_ns);
  append_number(out, "pid", event.pid == 0 ? kUnknown : event.pid);
  append_number(out, "tid", event.tid == 0 ? kUnknown : event.tid);
  fmt::format_to(to, ",\"plane\":\"{}\"", plane_name(plane_of(event.kind)));
  fmt::format_to(to, ",\"kind\":\"{}\"", kind_name(event.kind));
  out += ",\"api\":";
  out += api_text(event.api, tables);
  append_number(out, "device", event.device < 0 ? kUnknown : static_cast<uint64_t>(event.device));
  append_number(out, "stream", event.stream);
  append_number(out, "address", event.address);
  append_number(out, "size", event.size);
  append_number(out, "requested", event.requested);
  if (event.result == kResultPending) {
    out += ",\"result\":null";
  } else {
    fmt::format_to(to, ",\"result\":{}", event.result);
  }
  append_stack(event, tables, out);
  append_what_applies(event, tables, out);
  out += "}\n";
}

const std::string& EventJson::api_text(uint16_t api, const trace::TraceTables& tables) {
  static const std::string kNull = "null";
  const auto key = std::pair(&tables, api);
  const auto known = api_texts_.find(key);
  if (known != api_texts_.end()) return known->second;
  const auto name = tables.api_names.find(api);  // may arrive later
  if (name == tables.api_names.end()) return kNull;
  return api_texts_.emplace(key, json_string(name->second)).first->second;
}

void EventJson::append_stack(const Event& event, const trace::TraceTables& tables,
                             std::string& out) {
  if (event.stack == kNoStack || names_ == nullptr) {
    append_number(out, "stack", event.stack == kNoStack ? kUnknown : event.stack);
    return;
  }
  const auto* frames = names_->frames_of(event, tables);
  if (frames == nullptr) {
    out += ",\"stack\":null";
    return;
  }
  out += ",\"stack\":[";
  for (const symbolize::Frame& frame : *frames) {
    if (&frame != frames->data()) out += ',';
    append_frame(out, frame);
  }
  out += ']';
}

const std::vector<symbolize::Frame>* StackNames::frames_of(const Event& event,
                                                           const trace::TraceTables& tables) {
  if (event.stack == kNoStack || tables.stacks.find(event.stack) == tables.stacks.end()) {
    return nullptr;
  }
  const auto symbolizer = symbolizers_.try_emplace(&tables, tables, places_).first;
  frames_ = symbolizer->second.resolve_stack(event.stack, event.seq);
  return &frames_;
}

std::vector<std::string> StackNames::warnings() const {
  std::vector<std::string> all;
  for (const auto& [tables, symbolizer] : symbolizers_) {
    all.insert(all.end(), symbolizer.warnings().begin(), symbolizer.warnings().end());
  }
  return all;
}

}  // namespace fragscope::tools
