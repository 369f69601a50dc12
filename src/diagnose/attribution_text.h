// An attribution as text for people.
#pragma once

#include <string>

#include "diagnose/attribution.h"
#include "diagnose/finding_text.h"

namespace fragscope::diagnose {

// Several lines, the last one ended. Texts of the recording are made printable. `rows`: of each
// list; what is left of one is its last row.
std::string attribution_text(const Attribution& attribution, const StackLines& stack_lines,
                             size_t rows);

}  // namespace fragscope::diagnose
