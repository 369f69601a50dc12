// Results of command lists as JSON: one line per result, segment and figure, so that two answers
// can be compared with a line tool. Schema in COMMANDS.md.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/command_runner.h"

namespace fragscope::model {

// Facts about who answered, printed first: {"torch", "2.15"}, {"allocator", "model"}, …
using AnswerFacts = std::vector<std::pair<std::string, std::string>>;

std::string list_result_json(const ListResult& result, const VersionProfile& profile,
                             const AnswerFacts& facts);

// The text between quotes, escaped.
std::string json_escape(std::string_view text);

}  // namespace fragscope::model
