#include "tools/symbol_options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>

namespace fragscope::tools {

void add_symbol_options(CLI::App& command, symbolize::Places& places) {
  command.add_option("--sysroot", places.sysroot,
                     "Look for the recorded files below this directory");
  command.add_option("--debug-path", places.debug_paths,
                     "Look for debug files (.build-id/…) here too; may be given several times");
  command.add_flag("--debuginfod", places.debuginfod,
                   "Ask the servers of DEBUGINFOD_URLS for debug files (else nothing is fetched)");
}

std::string problem_of(const symbolize::Places& places) {
  std::error_code ignored;
  if (!places.sysroot.empty() && !std::filesystem::is_directory(places.sysroot, ignored)) {
    return "--sysroot " + places.sysroot + ": is no directory";
  }
  for (const std::string& path : places.debug_paths) {
    if (!std::filesystem::is_directory(path, ignored)) {
      return "--debug-path " + path + ": is no directory";
    }
  }
  const char* const servers = std::getenv("DEBUGINFOD_URLS");
  if (places.debuginfod && (servers == nullptr || *servers == '\0')) {
    return "--debuginfod: DEBUGINFOD_URLS names no server";
  }
  return {};
}

}  // namespace fragscope::tools
