// fragscope gpus: the cards that --gpu knows.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/bytes.h"
#include "simcuda/sim_config.h"
#include "tools/command.h"
#include "tools/json_text.h"

namespace fragscope::tools {
namespace {

void print_json() {
  auto list = Json::array();
  for (const simcuda::GpuPreset& gpu : simcuda::gpu_presets()) {
    list.push_back({{"id", gpu.id},
                    {"name", gpu.name},
                    {"total_bytes", gpu.total_bytes},
                    {"context_bytes", gpu.context_bytes},
                    {"compute_capability", fmt::format("{}.{}", gpu.cc_major, gpu.cc_minor)},
                    {"sm_count", gpu.sm_count},
                    {"l2_bytes", gpu.l2_bytes},
                    {"total_source", gpu.total_source}});
  }
  fmt::print("{}", document_text({{"schema", 1}, {"gpus", list}}));
}

void print_table() {
  fmt::print("{:<20} {:<38} {:>12} {:>12} {:>4} {}\n", "preset", "name", "total", "context", "cc",
             "total from");
  for (const simcuda::GpuPreset& gpu : simcuda::gpu_presets()) {
    fmt::print("{:<20} {:<38} {:>12} {:>12} {:>4} {}\n", gpu.id, gpu.name,
               format_size(gpu.total_bytes), format_size(gpu.context_bytes),
               fmt::format("{}.{}", gpu.cc_major, gpu.cc_minor), gpu.total_source);
  }
  fmt::print("\nAlso a plain size (--gpu 24GiB) and several cards (--gpu 4xa100-40gb).\n");
}

}  // namespace

void add_gpus_command(CLI::App& app, CommandContext&) {
  CLI::App* command = app.add_subcommand("gpus", "List the cards that --gpu can simulate");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "As JSON");
  command->callback([json] { *json ? print_json() : print_table(); });
}

}  // namespace fragscope::tools
