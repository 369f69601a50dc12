#include "tools/command.h"

#include <fmt/format.h>

#include <cstdio>

namespace fragscope::tools {

int fail(const Error& error) { return fail(error, exit_code_of(error.code)); }

int fail(const Error& error, int exit_code) {
  if (!error.offset) return fail(error.text, exit_code);
  return fail(fmt::format("{} (byte {})", error.text, *error.offset), exit_code);
}

int fail(std::string_view text, int exit_code) {
  say(text);
  return exit_code;
}

std::string whole_number(const std::string& text) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
  return digits && text.size() < 20 ? ""
                                    : fmt::format("'{}' is no whole number of 0 or more", text);
}

void say(std::string_view text) {
  const std::string line = "fragscope: " + one_line(text) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void warn(std::string_view text) { say("warning: " + std::string(text)); }

}  // namespace fragscope::tools
