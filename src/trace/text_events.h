// Traces as text, both ways: the language of golden tests and hand-written traces. One thing per
// line; `#` starts a comment line; values with blanks are quoted ("a b", escapes \" \\ \n \t \xHH).
//
//   process pid=100 program=demo sealed=1 exit=exited:0
//   property block_source=adaptor
//   stack 1 0x7f0000001000 0x400123
//   1 t=1000 tid=100 device_alloc api=cudaMalloc device=0 address=0x200000000000 size=2MiB
//   2 t=1010 tid=100 alloc device=0 stream=0 address=0x200000000000 size=512 requested=100 stack=1
//   - device_free address=0x200000000000 result=pending
//
// clang-format off
// | line     | fields                                                                          |
// |----------|---------------------------------------------------------------------------------|
// | process  | pid (default 1), start_ticks, realtime_ns, monotonic_ns, program, shim_version, |
// |          | sealed (default 1), exit = running, vanished (default), exited:N or signaled:N, |
// |          | dropped, torn. First line, or left out.                                         |
// | property | key=value                                                                       |
// | api      | ID NAME (an api that only events name gets an id by itself)                     |
// | text     | ID TEXT                                                                         |
// | python   | ID FUNCTION FILE [line=N] [first_line=N]: a Python frame                        |
// | stack    | ID FRAME…: addresses or pyID, innermost first                                   |
// | module   | START-END FILE_OFFSET PATH [build_id=HEX] [seq=N]                               |
// | calls    | NAME=N, calls per entry point                                                   |
// | event    | SEQ or "-" (next number), one kind, and t tid api device stream address size    |
// |          | requested result aux aux2 stack flags text pool                                 |
// clang-format on
//
// A field of an event that is left out is unknown; t is then the time before, result 0. Numbers are
// decimal or 0x hexadecimal; size, requested, aux and aux2 take 2MiB too. api and text are names,
// or #ID. result is a number or `pending`.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "event/event.h"
#include "trace/trace_data.h"
#include "trace/trace_reader.h"

namespace fragscope::trace {

// One event line without its end. Names come from the tables, or are #ID.
std::string format_event(const Event& event, const TraceTables& tables);

// The whole trace from its first event on; parse_text_trace() of it gives an equal trace.
std::string format_trace(TraceReader& reader);

// The whole text as a trace (encoded and opened again, so that every reader path is the real one).
// Errors: kDamaged, the text is "NAME:LINE: what is wrong there".
Result<TraceReader> parse_text_trace(std::string_view text, const std::string& name);

}  // namespace fragscope::trace
