// Moments of a recording, as options name them: `--at peak|oom|end|EVENT`. Which refusal `oom` is,
// the command's own help says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fragscope::tools {

// Empty when `text` is a moment, else what is wrong with it: for CLI11's check().
std::string moment_problem(const std::string& text);

// The number of the event, where the moment is one.
std::optional<uint64_t> moment_event(const std::string& text);

// Why there is no such moment: the recording ends before it.
std::string not_recorded_text(uint64_t event, uint64_t last);

}  // namespace fragscope::tools
