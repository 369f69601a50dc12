// One explanation as text for people.
#pragma once

#include <string>

#include "diagnose/verdict.h"

namespace fragscope::diagnose {

// Several lines, the last one ended; ASCII, 100 columns.
std::string explanation_text(const MessageScan& scan, const Explanation& explanation);

}  // namespace fragscope::diagnose
