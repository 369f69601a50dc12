#pragma once

#include <string_view>

namespace fragscope::tools {

inline constexpr std::string_view kVersion = FRAGSCOPE_VERSION;  // from CMake's project()

}  // namespace fragscope::tools
