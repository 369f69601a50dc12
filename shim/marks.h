// What the program says of itself: points in time and ranges, with a text. A mark alone does not
// start a recording.
//
// Threads: any. Equal texts are logged once.
#pragma once

#include <cstdint>
#include <string_view>

#include "event/event.h"

namespace fragscope::shim {

// kind: mark, range_push, range_pop (text is ignored), range_start, range_end (the same; `range` is
// the id that both have). Texts are cut after 1000 bytes.
void log_mark(EventKind kind, std::string_view text, uint64_t range = kUnknown) noexcept;

struct Session;
// A mark that somebody outside asked for: no stack, it is nobody's call.
void log_requested_mark(Session& session, std::string_view text) noexcept;
// Settings that somebody outside asked for, or that the program gave its allocator, hold from here
// on; `number` of the change. They are in the property alloc_conf.change.NUMBER too.
void log_changed_settings(Session& session, std::string_view settings, uint32_t number) noexcept;

}  // namespace fragscope::shim
