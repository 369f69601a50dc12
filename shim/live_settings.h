// Allocator settings that are asked for from outside (src/log/log_control.h): one load as long as
// nothing is asked for.
//
// Threads: any; one thread takes a request.
#pragma once

#include <cstddef>

#include "shim/session.h"

namespace fragscope::shim {

// Says in the log who carries settings out.
void note_enforcement(Session& session, log::Enforcement who) noexcept;
// The text of a request that nobody has taken, and its number; 0: there is none.
uint32_t take_settings(Session& session, char* text, size_t bytes) noexcept;
// `problem`: why not; may be null when accepted. Accepted settings go into the recording.
void answer_settings(Session& session, uint32_t number, bool accepted,
                     const char* problem) noexcept;

}  // namespace fragscope::shim
