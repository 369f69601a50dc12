#include "tools/moment.h"

#include <fmt/format.h>

#include "tools/command.h"

namespace fragscope::tools {
namespace {

bool is_word(const std::string& text) { return text == "peak" || text == "oom" || text == "end"; }

}  // namespace

std::string moment_problem(const std::string& text) {
  if (is_word(text) || whole_number(text).empty()) return {};
  return "'" + text + "' is no moment: peak, oom, end, or the number of an event";
}

std::optional<uint64_t> moment_event(const std::string& text) {
  if (is_word(text)) return std::nullopt;
  return std::stoull(text);
}

std::string not_recorded_text(uint64_t event, uint64_t last) {
  return fmt::format("event {} is not recorded: the last one is {}", event, last);
}

}  // namespace fragscope::tools
