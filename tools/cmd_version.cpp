#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "tools/command.h"
#include "tools/version.h"

namespace fragscope::tools {

void add_version_command(CLI::App& app, CommandContext&) {
  app.add_subcommand("version", "Print the version")->callback([] {
    fmt::print("fragscope {}\n", kVersion);
  });
}

}  // namespace fragscope::tools
