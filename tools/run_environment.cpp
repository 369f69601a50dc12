#include "tools/run_environment.h"

#include <algorithm>
#include <filesystem>

namespace fragscope::tools {
namespace {

bool names(std::string_view entry, std::string_view name) {
  return entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=';
}

void append(std::string& list, std::string_view entry) {
  if (!list.empty()) list += ':';
  list += entry;
}

bool is_ours(const std::string& entry, const PreloadOptions& options) {
  if (std::filesystem::path(entry).filename() == "libfragscope.so") return true;
  return std::find(options.stand_ins.begin(), options.stand_ins.end(), entry) !=
         options.stand_ins.end();
}

std::string merged_preload(std::string_view user, const Installation& installation,
                           const PreloadOptions& options) {
  std::string list;
  if (options.record) append(list, installation.shim);
  while (!user.empty()) {
    const size_t end = std::min(user.find_first_of(" :"), user.size());
    const std::string entry(user.substr(0, end));
    user.remove_prefix(std::min(end + 1, user.size()));
    if (!entry.empty() && !is_ours(entry, options)) append(list, entry);
  }
  if (options.simulate) {
    for (const std::string& path : options.stand_ins) append(list, path);
  }
  return list;
}

}  // namespace

std::optional<std::string> get_variable(const Environment& environment, std::string_view name) {
  for (const std::string& entry : environment) {
    if (names(entry, name)) return entry.substr(name.size() + 1);
  }
  return std::nullopt;
}

void unset_variable(Environment& environment, std::string_view name) {
  std::erase_if(environment, [&](const std::string& entry) { return names(entry, name); });
}

void set_variable(Environment& environment, std::string_view name, std::string_view value) {
  unset_variable(environment, name);
  environment.push_back(std::string(name) + "=" + std::string(value));
}

Environment target_environment(const Environment& user, const Installation& installation,
                               const PreloadOptions& options) {
  Environment target = user;
  for (const char* name : {"FRAGSCOPE_LOG_DIR", "FRAGSCOPE_LOG_FALLBACK_DIR", "FRAGSCOPE_OUT"}) {
    unset_variable(target, name);
  }
  const std::string preload =
      merged_preload(get_variable(user, "LD_PRELOAD").value_or(""), installation, options);
  unset_variable(target, "LD_PRELOAD");
  if (!preload.empty()) set_variable(target, "LD_PRELOAD", preload);
  // NVTX asks for its tool by this name; a tool of the user's stays.
  if (options.record && !get_variable(user, "NVTX_INJECTION64_PATH")) {
    set_variable(target, "NVTX_INJECTION64_PATH", installation.shim);
  }
  if (options.simulate) {
    std::string path = installation.sim_directory;
    const auto own = get_variable(user, "LD_LIBRARY_PATH");
    if (own && !own->empty()) append(path, *own);
    set_variable(target, "LD_LIBRARY_PATH", path);
  }
  return target;
}

}  // namespace fragscope::tools
