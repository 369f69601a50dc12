// One word of a command line that takes many values: `--vary BATCH=1..256 -- … --batch {BATCH}`.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace fragscope::tools {

struct Variable {
  std::string name;
  std::vector<std::string> values;  // in the order of the search
};

// "BATCH=1..256" (every integer), "BATCH=8,16,32", "MODEL=small,large". Errors: kInvalidArgument,
// the text quotes the input; more than 100,000 values are refused.
Result<Variable> parse_variable(const std::string& text);

// The command with every "{NAME}" replaced. kInvalidArgument when no word has it.
Result<std::vector<std::string>> with_value(const std::vector<std::string>& command,
                                            const std::string& name, const std::string& value);

}  // namespace fragscope::tools
