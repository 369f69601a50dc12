// One event as one line of JSON, the schema of `fragscope events --jsonl`:
//
//   seq, t_ns (CLOCK_MONOTONIC), pid, tid, plane ("driver" | "block" | "mark"), kind, api, device,
//   stream, address, size, requested, result, stack — always there, integers or strings, null when
//   unknown; then, where they apply: allocated, reserved (block bytes after the event), device_free
//   (oom), handle (va_map), source ("adaptor" | "report" | "api" | "snapshot"), served (true:
//   answered by the enforced policy), pool (block plane: [0, 0] the default pools, [n, 0] of a
//   graph capture, [0, n] of the program), at_start (true: no call, it was there when recording
//   began), text (marks, annotate).
//
// `result` is null while a call had not returned; `stack` is an id, or with resolved stacks an
// array of {"address", "module", "offset", "function", "file", "line"}: offset in the file's own
// addresses, function demangled, null where it cannot be told. Python frames come first, then
// native ones, both innermost first; a Python frame has "python": true and no address, a function
// that was inlined into the next one "inlined": true and the same address. `stack_truncated`: true
// for stacks deeper than the recording limit.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "event/event.h"
#include "symbolize/symbolizer.h"
#include "trace/trace_data.h"

namespace fragscope::tools {

// Names of the frames of several processes' stacks. Borrows the tables it is asked with.
class StackNames {
 public:
  explicit StackNames(symbolize::Places places = {}) : places_(std::move(places)) {}

  // Innermost frame first; nullptr for an event without a stack or with one the trace lacks. Valid
  // until the next call.
  const std::vector<symbolize::Frame>* frames_of(const Event& event,
                                                 const trace::TraceTables& tables);
  // One line for each file that gave no names.
  std::vector<std::string> warnings() const;

 private:
  symbolize::Places places_;
  std::map<const trace::TraceTables*, symbolize::Symbolizer> symbolizers_;
  std::vector<symbolize::Frame> frames_;  // reused
};

class EventJson {
 public:
  // `names`: resolves stacks and outlives this object; nullptr: stacks are numbers.
  explicit EventJson(StackNames* names) : names_(names) {}

  // Appends the line, '\n' included. `tables` are those of the event's process and outlive this
  // object.
  void append(const Event& event, const trace::TraceTables& tables, std::string& out);

 private:
  // The name of an entry point, quoted, or "null"; looked up once.
  const std::string& api_text(uint16_t api, const trace::TraceTables& tables);
  void append_stack(const Event& event, const trace::TraceTables& tables, std::string& out);

  StackNames* names_;
  std::map<std::pair<const trace::TraceTables*, uint16_t>, std::string> api_texts_;
};

// `text` as a JSON string, quotes included; invalid UTF-8 becomes U+FFFD.
std::string json_string(std::string_view text);

}  // namespace fragscope::tools
