// Messages that state a cause instead of figures: status codes, host memory, other frameworks.
#pragma once

#include "diagnose/verdict.h"

namespace fragscope::diagnose {

// Fills verdict, alternatives, confidence and why from family and hints.
void judge_stated(const OomFacts& facts, Explanation& out);

}  // namespace fragscope::diagnose
