// What every subcommand shares: how it registers itself, and how it fails.
//
// One file cmd_<name>.cpp per subcommand. It defines add_<name>_command(), which adds a CLI11
// subcommand whose callback does the work and leaves the exit code in the context; the name stands
// in commands.def and the file in tools/CMakeLists.txt. Results go to stdout, everything else to
// stderr.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "tools/exit_codes.h"

namespace CLI {
class App;
}

namespace fragscope::tools {

struct CommandContext {
  int exit_code = kExitOk;
  // What followed the first "--" of the command line, word by word as given: options parsers have
  // ideas of their own about words such as "{}".
  std::vector<std::string> command_line;
};

#define FRAGSCOPE_COMMAND(name) void add_##name##_command(CLI::App& app, CommandContext& context);
#include "tools/commands.def"
#undef FRAGSCOPE_COMMAND

// Prints ONE line `fragscope: <text>[ (byte <offset>)]` on stderr and returns the exit code that
// belongs to it; control characters of the text are escaped, so that it stays one line.
int fail(const Error& error);
// The same with a code of the caller's choice (kExitOutput, kExitRunFailed, …).
int fail(const Error& error, int exit_code);
int fail(std::string_view text, int exit_code);

// A check for options: empty when `text` is a whole number of 0 or more, else what is wrong with
// it.
std::string whole_number(const std::string& text);

// `fragscope: <text>` on stderr, in one line; never throws, whatever has become of stderr.
void say(std::string_view text);

// The same with `warning: ` in front.
void warn(std::string_view text);

// The same as printable(): what it is needed for here.
// What a child wrote, up to its first line break.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }
inline std::string one_line(std::string_view text) { return printable(text); }

}  // namespace fragscope::tools
