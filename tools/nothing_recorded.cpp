#include "tools/nothing_recorded.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

namespace fragscope::tools {
namespace {

// Programs that start the real one elsewhere, or without our environment.
constexpr std::array kEscapes = {"sudo",   "su",   "doas",   "ssh",         "docker",
                                 "podman", "srun", "mpirun", "singularity", "systemd-run"};

}  // namespace

std::string why_nothing_recorded(const std::map<std::string, std::string>& notes,
                                 const std::vector<std::string>& command) {
  if (notes.count("disabled") != 0) return "FRAGSCOPE_DISABLE=1 was set";
  const auto blocked = notes.find("not_preloadable");
  if (blocked != notes.end()) return blocked->second;
  const std::string name =
      command.empty() ? "" : std::filesystem::path(command.front()).filename().string();
  for (const char* escape : kEscapes) {
    if (name == escape) {
      return fmt::format("{} does not pass the environment on: put fragscope run behind it", name);
    }
  }
  const auto seen = notes.find(kDriverSeenNote);
  if (seen != notes.end() && seen->second == "1") {
    return "CUDA's driver was loaded, but no memory was asked of it";
  }
  return "no process of the command loaded CUDA's driver with the recorder in it: it does not use "
         "CUDA, is linked statically as a whole, ran where our environment did not reach "
         "(env -i, setuid, a container, another host), or gave up its user before it did "
         "(--log-group)";
}

}  // namespace fragscope::tools
