// One explanation as JSON and as text for people.
#pragma once

#include <string>

#include "diagnose/verdict.h"

namespace fragscope::diagnose {

// {"verdict", "alternatives", "fields", "derived", "confidence", "why", "actions"}, one line.
// Bytes are integers, what is unknown is null. Without a message every field is null.
std::string explanation_json(const MessageScan& scan, const Explanation& explanation);

}  // namespace fragscope::diagnose
