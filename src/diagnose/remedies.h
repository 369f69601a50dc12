// What to do, per verdict: ordered by what usually helps, honest about what usually does not.
#pragma once

#include "diagnose/verdict.h"

namespace fragscope::diagnose {

// For memory that lies idle in private pools, which no setting against fragmentation reaches.
std::vector<std::string> private_pool_remedies();

std::vector<std::string> remedies(const OomFacts& facts, const Explanation& explanation);

}  // namespace fragscope::diagnose
