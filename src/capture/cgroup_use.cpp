#include "capture/cgroup_use.h"

#include <algorithm>
#include <charconv>

#include "capture/host_use.h"

namespace fragscope::capture {
namespace {

// The old kind has no word for "no limit": a number that no machine has.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

std::string_view take_until(std::string_view& text, char end) {
  const size_t length = std::min(text.find(end), text.size());
  const std::string_view part = text.substr(0, length);
  text.remove_prefix(std::min(length + 1, text.size()));
  return part;
}

bool has_option(std::string_view options, std::string_view name) {
  while (!options.empty()) {
    if (take_until(options, ',') == name) return true;
  }
  return false;
}

// Blanks and backslashes are written as \040 and \134.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (size_t at = 0; at < text.size(); ++at) {
    unsigned code = 0;
    const std::string_view digits = text.substr(at + 1, 3);
    if (text[at] == '\\' && digits.size() == 3 &&
        std::from_chars(digits.data(), digits.data() + 3, code, 8).ptr == digits.data() + 3) {
      plain += static_cast<char>(code);
      at += 3;
    } else {
      plain += text[at];
    }
  }
  return plain;
}

std::optional<uint64_t> number_in(const std::string& path) {
  const auto text = read_proc(path);
  if (!text) return std::nullopt;
  uint64_t value = 0;  // "max" is none
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  return error == std::errc() && end != text->data() ? std::optional(value) : std::nullopt;
}

// Page cache that the kernel drops before it refuses anybody memory: "inactive_file 4096".
uint64_t droppable_in(const std::string& directory, bool old) {
  const auto text = read_proc(directory + "/memory.stat");
  std::string_view rest = text ? std::string_view(*text) : std::string_view();
  while (!rest.empty()) {
    std::string_view line = take_until(rest, '\n');
    if (take_until(line, ' ') != (old ? "total_inactive_file" : "inactive_file")) continue;
    uint64_t bytes = 0;
    std::from_chars(line.data(), line.data() + line.size(), bytes);
    return bytes;
  }
  return 0;
}

std::optional<CgroupUse> use_of(const std::string& directory, int version) {
  const bool old = version == 1;
  CgroupUse use;
  use.used = number_in(directory + (old ? "/memory.usage_in_bytes" : "/memory.current"));
  use.limit = number_in(directory + (old ? "/memory.limit_in_bytes" : "/memory.max"));
  if (use.limit && *use.limit >= kNoLimit) use.limit.reset();
  if (use.used) *use.used -= std::min(*use.used, droppable_in(directory, old));
  if (!use.used && !use.limit) return std::nullopt;
  return use;
}

// The path of a process's group in the hierarchy of `mount`: "0::/a/b" or "4:memory:/a/b".
std::optional<std::string> group_in(std::string_view text, const CgroupMount& mount) {
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    const std::string_view number = take_until(line, ':');
    const std::string_view controllers = take_until(line, ':');
    const bool wanted = mount.version == 2 ? number == "0" && controllers.empty()
                                           : has_option(controllers, "memory");
    if (wanted) return std::string(line);
  }
  return std::nullopt;
}

// Below the mount, "" for its root; a group that the mount does not show (of another namespace) is
// taken for that.
std::string below_mount(std::string group, const std::string& root) {
  const std::string prefix = root == "/" ? "" : root;
  const bool shown =
      group.starts_with(prefix) && (group.size() == prefix.size() || group[prefix.size()] == '/');
  group = shown ? group.substr(prefix.size()) : "";
  if (group == "/" || group.starts_with("/..")) group.clear();
  return group;
}

std::optional<CgroupUse> tightest_in(std::string group, const CgroupMount& mount) {
  std::optional<CgroupUse> tightest;
  for (;;) {
    tightest = tighter(tightest, use_of(mount.point + group, mount.version));
    if (group.empty()) return tightest;
    group.resize(group.rfind('/'));
  }
}

uint64_t room(const CgroupUse& use) {
  if (!use.limit) return UINT64_MAX;
  return *use.limit - std::min(*use.limit, use.used.value_or(0));
}

}  // namespace

// 35 31 0:32 /root /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
std::vector<CgroupMount> parse_cgroup_mounts(std::string_view mountinfo) {
  std::vector<CgroupMount> mounts;
  while (!mountinfo.empty()) {
    const std::string_view line = take_until(mountinfo, '\n');
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    std::string_view before = line.substr(0, dash);
    std::string_view after = line.substr(dash + 3);
    for (int skipped = 0; skipped < 3; ++skipped) take_until(before, ' ');
    const std::string root = unescaped(take_until(before, ' '));
    const std::string point = unescaped(take_until(before, ' '));
    const std::string_view type = take_until(after, ' ');
    take_until(after, ' ');  // what is mounted
    if (type == "cgroup2") mounts.push_back({2, root, point});
    if (type == "cgroup" && has_option(after, "memory")) mounts.push_back({1, root, point});
  }
  return mounts;
}

std::optional<CgroupUse> tighter(const std::optional<CgroupUse>& a,
                                 const std::optional<CgroupUse>& b) {
  if (!a || !b) return a ? a : b;
  return room(*b) < room(*a) ? b : a;
}

std::optional<CgroupUse> tightest_cgroup(std::string_view text,
                                         const std::vector<CgroupMount>& mounts) {
  std::optional<CgroupUse> tightest;
  for (const CgroupMount& mount : mounts) {
    const auto group = group_in(text, mount);
    if (!group) continue;
    tightest = tighter(tightest, tightest_in(below_mount(*group, mount.root), mount));
  }
  return tightest;
}

}  // namespace fragscope::capture
