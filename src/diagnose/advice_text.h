// Advice as text for people.
#pragma once

#include <string>

#include "diagnose/advice.h"

namespace fragscope::diagnose {

// `variable`: that the release reads its settings from. Several lines, the last one ended.
std::string advice_text(const Advice& advice, const std::string& variable);

}  // namespace fragscope::diagnose
