// One event as one line of JSON, the schema of `fragscope events --jsonl`:
//
//   seq, t_ns (CLOCK_MONOTONIC), pid, tid, plane ("driver" | "block" | "mark"), kind, api, device,
//   stream, address, size, requested, result, stack — always there, integers or strings, null when
//   unknown; then, where they apply: allocated, reserved (block bytes after the event), device_free
//   (oom), handle (va_map), source ("adaptor" | "report" | "api" | "snapshot"), served (true:
//   answered by the enforced policy), text (marks).
//
// `result` is null while a call had not returned; `stack` is an id, or with resolved stacks an
// array, innermost frame first, of {"address", "module", "offset"}.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "event/event.h"
#include "trace/trace_data.h"

namespace fragscope::tools {

class EventJson {
 public:
  explicit EventJson(bool resolve_stacks) : resolve_stacks_(resolve_stacks) {}

  // Appends the line, '\n' included. `tables` are those of the event's process and outlive this
  // object.
  void append(const Event& event, const trace::TraceTables& tables, std::string& out);

 private:
  // The name of an entry point, quoted, or "null"; looked up once.
  const std::string& api_text(uint16_t api, const trace::TraceTables& tables);
  void append_stack(const Event& event, const trace::TraceTables& tables, std::string& out);

  bool resolve_stacks_;
  std::string frames_;  // reused
  std::map<std::pair<const trace::TraceTables*, uint16_t>, std::string> api_texts_;
};

// `text` as a JSON string, quotes included; invalid UTF-8 becomes U+FFFD.
std::string json_string(std::string_view text);

}  // namespace fragscope::tools
