// Kinds of events <-> their names and planes, expanded from event_kinds.def.
#pragma once

#include <optional>
#include <string_view>

#include "event/event.h"

namespace fragscope {

// "?" for a value that is no kind.
std::string_view kind_name(EventKind kind);
std::optional<EventKind> kind_from_name(std::string_view name);
std::optional<EventKind> kind_from_wire(uint64_t wire_id);

Plane plane_of(EventKind kind);
std::string_view plane_name(Plane plane);

}  // namespace fragscope
