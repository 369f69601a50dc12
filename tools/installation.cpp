#include "tools/installation.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

namespace fragscope::tools {
namespace fs = std::filesystem;
namespace {

// In the order in which the loader shall see them: the newer runtime first.
constexpr std::array kStandIns = {"libcudart.so.13", "libcudart.so.12",   "libcublas.so.13",
                                  "libcublas.so.12", "libcublasLt.so.13", "libcublasLt.so.12"};

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
  for (const char* name : kStandIns) {
    const std::string path = installation.sim_directory + "/" + name;
    std::error_code ignored;
    if (fs::exists(path, ignored)) paths.push_back(path);
  }
  return paths;
}

}  // namespace fragscope::tools
