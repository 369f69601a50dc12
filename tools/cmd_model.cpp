#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "model/command_json.h"
#include "model/command_runner.h"
#include "tools/command.h"

namespace fragscope::tools {
namespace {

using namespace fragscope::model;

struct ModelOptions {
  std::string file;
  std::string settings;
  std::string device_memory;
  std::string torch;
  bool json = false;
};

Result<std::string> read_all(const std::string& path) {
  const bool from_stdin = path == "-";
  std::FILE* file = from_stdin ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    const auto code = errno == EACCES ? ErrorCode::kPermission : ErrorCode::kNotFound;
    return Error{code, path + ": " + std::strerror(errno)};
  }
  std::string text;
  char buffer[65536];
  size_t got = 0;
  while ((got = std::fread(buffer, 1, sizeof buffer, file)) > 0) text.append(buffer, got);
  const bool failed = std::ferror(file) != 0;
  const int reason = errno;
  if (!from_stdin) std::fclose(file);
  if (failed) return Error{ErrorCode::kNotFound, path + ": " + std::strerror(reason)};
  return text;
}

Result<uint64_t> choose_memory(const ModelOptions& options, const CommandList& list) {
  if (options.device_memory.empty()) return list.capacity.value_or(kDefaultDeviceMemory);
  Result<uint64_t> size = parse_size(options.device_memory);
  if (size && size.value() == 0) {
    return Error{ErrorCode::kInvalidArgument, "--device-memory must not be 0"};
  }
  return size;
}

void print_text(const ListResult& result) {
  for (const CommandResult& r : result.results) {
    fmt::print("{:>5}  {:<14} {:<12} {:<9}", r.command.line, command_word(r.command.kind), r.id,
               r.outcome);
    if (r.address) fmt::print(" {:#x}", *r.address);
    if (r.block_size) fmt::print(" {}", format_size(*r.block_size));
    fmt::print("\n");
    if (!r.message.empty()) fmt::print("       {}\n", r.message);
  }
  for (const DeviceResult& device : result.devices) {
    fmt::print("device {}: allocated {}, reserved {}, {} segments\n", device.device,
               format_size(static_cast<uint64_t>(device.stats.allocated_bytes.all.current)),
               format_size(static_cast<uint64_t>(device.stats.reserved_bytes.all.current)),
               device.segments.size());
    for (const SegmentSnapshot& segment : device.segments) {
      fmt::print("  {:#x} {:>12} {} stream {}\n", segment.address, format_size(segment.total_size),
                 segment.kind == PoolKind::kSmall ? "small" : "large", segment.stream);
      for (const BlockSnapshot& block : segment.blocks) {
        fmt::print("    {:#x} {:>12} {}\n", block.address, format_size(block.size),
                   block.state == BlockState::kAllocated     ? "allocated"
                   : block.state == BlockState::kPendingFree ? "pending"
                                                             : "free");
      }
    }
  }
}

int run_model(const ModelOptions& options) {
  const Result<ProfileMatch> asked =
      asked_version_profile(options.torch.empty() ? version_profiles().back().name : options.torch);
  if (!asked) return fail(Error{asked.error().code, "--torch: " + asked.error().text});
  const ProfileMatch& match = asked.value();
  if (!match.exact) {
    warn("no rules for torch " + options.torch + " yet, using those of " +
         std::string(match.profile->name));
  }
  const Result<std::string> text = read_all(options.file);
  if (!text) return fail(text.error());
  const Result<CommandList> list =
      parse_commands(text.value(), options.file == "-" ? "stdin" : options.file);
  if (!list) return fail(list.error(), kExitInput);
  const Result<AllocatorConfig> config = parse_config(options.settings, *match.profile);
  if (!config) return fail(config.error());
  const Result<uint64_t> memory = choose_memory(options, list.value());
  if (!memory) return fail(memory.error());

  const auto target =
      make_model_target(list.value(), config.value(), *match.profile, memory.value());
  const ListResult result = run_commands(list.value(), *target);
  if (options.json) {
    const std::string name(match.profile->name);
    const AnswerFacts facts = {{"torch", name}, {"allocator", "model"}};
    fmt::print("{}", list_result_json(result, *match.profile, facts));
  } else {
    print_text(result);
  }
  return std::fflush(stdout) == 0 ? kExitOk : fail("cannot write the answer", kExitOutput);
}

}  // namespace

void add_model_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ModelOptions>();
  CLI::App* command =
      app.add_subcommand("model", "Run a command list on the model of PyTorch's allocator");
  command->add_option("FILE", options->file, "command list; - is standard input")->required();
  command->add_option("--alloc-conf", options->settings, "settings, PyTorch's key:value grammar");
  command->add_option("--device-memory", options->device_memory,
                      "memory of a device (default: the list's capacity, or 80GiB)");
  command->add_option("--torch", options->torch, "PyTorch release to model (default: newest)");
  command->add_flag("--json", options->json, "print the answer as JSON");
  command->callback([options, &context] { context.exit_code = run_model(*options); });
}

}  // namespace fragscope::tools
