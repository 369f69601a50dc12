#include "tools/installation.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>

namespace fragscope::tools {
namespace fs = std::filesystem;
namespace {

// Stand-ins that no program finds by a path of its own: LD_LIBRARY_PATH is enough.
bool found_without_preload(const std::string& name) {
  return name == "libcuda.so.1" || name == "libnvidia-ml.so.1";
}

Status check_preloadable(const std::string& path) {
  if (path.find_first_of(": ") != std::string::npos) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{}: LD_PRELOAD cannot name a path with a space or a colon; install "
                             "fragscope elsewhere",
                             path)};
  }
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is missing; build or install fragscope completely", path)};
  }
  return Done{};
}

}  // namespace

Installation find_installation() {
  std::error_code ignored;
  const fs::path root = fs::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
  return {root / "lib/libfragscope.so", root / "lib/fragscope/sim",
          root / "share/fragscope/torch_adaptor.cpp"};
}

Status check_shim(const Installation& installation) { return check_preloadable(installation.shim); }

Status check_stand_ins(const Installation& installation) {
  return check_preloadable(installation.sim_directory + "/libcuda.so.1");
}

std::vector<std::string> preloaded_stand_ins(const Installation& installation) {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(installation.sim_directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("lib") && name.find(".so.") != std::string::npos &&
        !found_without_preload(name)) {
      paths.push_back(entry.path().string());
    }
  }
  // The newer runtime first: where two majors have a name, the loader takes the first.
  std::sort(paths.begin(), paths.end(), std::greater<>());
  return paths;
}

}  // namespace fragscope::tools
