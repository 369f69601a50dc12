// Events as text, one per line, both ways: the language of golden tests and hand-written traces.
//
//   # comment
//   process pid=100 program=demo sealed=1 exit=exited:0
//   property block_source=adaptor
//   1 t=1000 tid=100 device_alloc api=cudaMalloc device=0 address=0x200000000000 size=2097152
//   2 t=1010 tid=100 alloc device=0 stream=0 address=0x200000000000 size=512 requested=100
//
// A field that is left out is unknown; `seq` may be "-" (numbered on reading). Errors name the
// line.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "event/event.h"
#include "trace/trace_data.h"
#include "trace/trace_reader.h"

namespace fragscope::trace {

std::string format_event(const Event& event, const TraceTables& tables);

// The whole text as a trace (encoded and opened again, so that every reader path is the real one).
Result<TraceReader> parse_text_trace(std::string_view text, const std::string& name);

}  // namespace fragscope::trace
