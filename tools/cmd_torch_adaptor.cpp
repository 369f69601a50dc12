// fragscope torch-adaptor build | list | clean
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "tools/command.h"
#include "tools/program_lookup.h"
#include "tools/torch_adaptor.h"

namespace fragscope::tools {
namespace {

struct AdaptorOptions {
  std::string python = "python3";
  bool rebuild = false;
};

int build(const AdaptorOptions& options) {
  const char* path = std::getenv("PATH");
  const auto python = find_program(options.python, path != nullptr ? path : "");
  if (!python.ok()) return fail(python.error());
  const auto torch = find_torch(python.value());
  if (!torch.ok()) return fail(torch.error());
  if (!torch.value()) return fail(fmt::format("{} has no torch", python.value()), kExitNo);
  const Installation installation = find_installation();
  const auto built = ensure_adaptor({installation, *torch.value(), adaptor_directory(),
                                     options.rebuild, [](const std::string& line) { say(line); }});
  if (!built.ok()) return fail(built.error());
  fmt::print("{}\n", built->path);
  return kExitOk;
}

int list() {
  for (const CachedAdaptor& adaptor : list_adaptors(adaptor_directory())) {
    fmt::print("{}  torch {}  {}\n", adaptor.build_id, adaptor.torch.empty() ? "?" : adaptor.torch,
               adaptor.path);
  }
  return kExitOk;
}

int clean() {
  const auto removed = clean_adaptors(adaptor_directory());
  if (!removed.ok()) return fail(removed.error(), kExitOutput);
  fmt::print("removed {} adaptor{} from {}\n", removed.value(), removed.value() == 1 ? "" : "s",
             adaptor_directory());
  return kExitOk;
}

}  // namespace

void add_torch_adaptor_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand(
      "torch-adaptor", "Build, list or remove the adaptors that show PyTorch's blocks");
  command->require_subcommand(1);
  const auto options = std::make_shared<AdaptorOptions>();
  CLI::App* builder = command->add_subcommand("build", "Build the adaptor for a Python's torch");
  builder->add_option("--python", options->python, "Interpreter whose torch is meant");
  builder->add_flag("--rebuild", options->rebuild, "Build it even if it is in the cache");
  builder->callback([options, &context] { context.exit_code = build(*options); });
  command->add_subcommand("list", "List the adaptors in the cache")->callback([&context] {
    context.exit_code = list();
  });
  command->add_subcommand("clean", "Remove all adaptors from the cache")->callback([&context] {
    context.exit_code = clean();
  });
}

}  // namespace fragscope::tools
