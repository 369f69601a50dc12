// Text of foreign origin (paths, program names, arguments) on its way to a person.
#pragma once

#include <string>
#include <string_view>

namespace fragscope {

// `text` with control characters (C0, DEL, C1) and bytes that are not well-formed UTF-8 as \xNN:
// one line that does nothing to a terminal, and valid UTF-8.
std::string printable(std::string_view text);

}  // namespace fragscope
