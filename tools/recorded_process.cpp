#include "tools/recorded_process.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "capture/process_state.h"

namespace fragscope::tools {
namespace fs = std::filesystem;
namespace {

// The child of a fork keeps its parent's descriptors: logs are named <pid>-…
// A process of a container calls itself otherwise than it is called here.
bool is_log_of(const fs::path& target, const std::vector<uint32_t>& pids) {
  const std::string name = target.filename().string();
  return target.extension() == ".fslog" && std::any_of(pids.begin(), pids.end(), [&](uint32_t pid) {
           return name.starts_with(std::to_string(pid) + "-");
         });
}

}  // namespace

Result<std::string> find_log_of(uint32_t pid) {
  const std::string number = std::to_string(pid);
  const fs::path process = fs::path("/proc") / number;
  std::vector<uint32_t> pids = capture::pids_of(pid);
  pids.push_back(pid);
  std::error_code error;
  if (!fs::exists(process, error)) return Error{ErrorCode::kNotFound, "no process " + number};
  fs::directory_iterator entry(process / "fd", error);
  if (error) {
    return Error{ErrorCode::kPermission,
                 "process " + number + ": its files cannot be seen: " + error.message()};
  }
  for (; entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code gone;
    const fs::path target = fs::read_symlink(entry->path(), gone);
    if (gone || !is_log_of(target, pids)) continue;
    const fs::path outside = process / "root" / target.relative_path();
    return fs::exists(target, gone) ? target.string() : outside.string();
  }
  return Error{ErrorCode::kNotFound,
               "process " + number +
                   " is not recorded: libfragscope.so is not preloaded, is "
                   "switched off, or the process has made no CUDA memory call yet"};
}

}  // namespace fragscope::tools
