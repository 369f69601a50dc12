// What to do, per verdict: ordered by what usually helps, honest about what usually does not.
#pragma once

#include "diagnose/verdict.h"

namespace fragscope::diagnose {

std::vector<std::string> remedies(const OomFacts& facts, const Explanation& explanation);

}  // namespace fragscope::diagnose
