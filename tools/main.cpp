// fragscope: records, replays and explains the GPU memory of unmodified programs.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/command.h"
#include "tools/version.h"

namespace fragscope::tools {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 ok, 1 the answer is no, 2 usage, 3 input unusable, 4 output cannot be written,\n"
    "5 nothing was recorded, 125 run itself failed, 126 command not executable, 127 command not\n"
    "found; otherwise `run` passes the program's code on (128+n for a signal).";

int parse_failure(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    return app.exit(error);  // --help, --version: on stdout
  }
  return fail(std::string(error.what()) + "; see fragscope --help", kExitUsage);
}

bool is_command(const CLI::App& app, const std::string& name) {
  const auto named = [&](const CLI::App* command) { return command->check_name(name); };
  return !app.get_subcommands(named).empty();
}

// A result that did not reach its reader is a failure, however right it was.
int finish_output(int exit_code) {
  if (exit_code == kExitOutput) return exit_code;  // has been told
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  return fail(fmt::format("cannot write to standard output: {}", std::strerror(errno)),
              kExitOutput);
}

// A stream that was closed for us must not become the number of a file of ours. What stands in for
// it cannot be written to, so that output that nobody gets is an error; it is closed again in a
// command that is started.
void hold_standard_streams() {
  while (true) {
    const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd > STDERR_FILENO) ::close(fd);
    if (fd > STDERR_FILENO || fd < 0) return;
  }
}

int main(int argc, char** argv) {
  hold_standard_streams();
  CLI::App app("Records, replays and explains the GPU memory of unmodified programs", "fragscope");
  app.set_version_flag("--version", fmt::format("fragscope {}", kVersion));
  app.require_subcommand(1);
  app.footer(kFooter);
  CommandContext context;
#define FRAGSCOPE_COMMAND(name) add_##name##_command(app, context);
#include "tools/commands.def"
#undef FRAGSCOPE_COMMAND
  if (argc > 1 && argv[1][0] != '-' && !is_command(app, argv[1])) {
    return fail(fmt::format("no command '{}'; see fragscope --help", argv[1]), kExitUsage);
  }
  const auto end =
      std::find_if(argv, argv + argc, [](const char* word) { return !std::strcmp(word, "--"); });
  if (end != argv + argc) context.command_line.assign(end + 1, argv + argc);
  try {
    app.parse(static_cast<int>(end - argv), argv);
  } catch (const CLI::ParseError& error) {
    return finish_output(parse_failure(app, error));
  } catch (const std::exception& error) {
    if (std::ferror(stdout) != 0) return finish_output(kExitOk);
    return fail(error.what(), kExitNo);
  }
  return finish_output(context.exit_code);
}

}  // namespace
}  // namespace fragscope::tools

int main(int argc, char** argv) { return fragscope::tools::main(argc, argv); }
