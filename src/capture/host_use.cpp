#include "capture/host_use.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "capture/process_state.h"

namespace fragscope::capture {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kKib = 1024;

template <typename T>
bool number(std::string_view text, T& out, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return error == std::errc() && end == text.data() + text.size();
}

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

// "Pss:               1234 kB"
std::optional<uint64_t> kib_field(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    std::string_view line = take_line(text);
    if (!line.starts_with(name) || line.substr(name.size(), 1) != ":") continue;
    line.remove_prefix(name.size() + 1);
    uint64_t kib = 0;
    if (number(take_word(line), kib)) return kib * kKib;
  }
  return std::nullopt;
}

// Numbers in the names of a directory's entries.
std::vector<uint32_t> numbered_entries(const std::string& directory) {
  std::vector<uint32_t> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    uint32_t value = 0;
    const std::string name = entry->path().filename().string();
    if (number(std::string_view(name), value)) found.push_back(value);
  }
  return found;
}

// Kernels without CONFIG_PROC_CHILDREN have no such file.
bool has_children_files() {
  static const bool has = ::access("/proc/thread-self/children", R_OK) == 0;
  return has;
}

std::vector<uint32_t> children_by_thread(uint32_t pid) {
  std::vector<uint32_t> children;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const uint32_t tid : numbered_entries(tasks)) {
    const auto text = read_proc(tasks + "/" + std::to_string(tid) + "/children");
    if (!text) continue;
    std::string_view rest = *text;
    for (auto word = take_word(rest); !word.empty(); word = take_word(rest)) {
      uint32_t child = 0;
      if (number(word, child)) children.push_back(child);
    }
  }
  return children;
}

std::multimap<uint32_t, uint32_t> all_by_parent() {
  std::multimap<uint32_t, uint32_t> all;
  for (const uint32_t pid : numbered_entries("/proc")) {
    if (const auto stat = read_proc_stat(pid)) all.emplace(stat->parent, pid);
  }
  return all;
}

}  // namespace

std::optional<uint64_t> parse_pss(std::string_view text) { return kib_field(text, "Pss"); }

std::optional<uint64_t> parse_available(std::string_view text) {
  return kib_field(text, "MemAvailable");
}

// 7f12a4000000-7f12a4195000 rw-s 00026000 00:1a 1234   /dev/shm/torch_7_1 (deleted)
std::vector<MappedFile> parse_mapped_files(std::string_view text, std::string_view directory) {
  std::map<std::string, MappedFile> files;
  while (!text.empty()) {
    std::string_view line = take_line(text);
    const std::string_view range = take_word(line);
    take_word(line);  // permissions
    const std::string_view offset_text = take_word(line);
    const std::string_view device = take_word(line);
    const std::string_view inode = take_word(line);
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (!line.starts_with(directory) || line.substr(directory.size(), 1) != "/") continue;
    const size_t dash = std::min(range.find('-'), range.size());
    uint64_t start = 0;
    uint64_t end = 0;
    uint64_t offset = 0;
    const bool whole = number(range.substr(0, dash), start, 16) && dash < range.size() &&
                       number(range.substr(dash + 1), end, 16) && number(offset_text, offset, 16);
    if (!whole || end < start) continue;
    constexpr std::string_view kDeleted = " (deleted)";
    MappedFile& file = files[std::string(device) + ":" + std::string(inode)];
    file.unlinked = line.ends_with(kDeleted);
    if (file.unlinked) line.remove_suffix(kDeleted.size());
    file.path = line;
    file.mapped_end = std::max(file.mapped_end, offset + (end - start));
  }
  std::vector<MappedFile> list;
  for (auto& [id, file] : files) {
    file.id = id;
    list.push_back(std::move(file));
  }
  return list;
}

std::optional<std::string> read_proc(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  char buffer[1 << 16];
  ssize_t count = 0;
  while ((count = ::read(fd, buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<size_t>(count));
  }
  ::close(fd);
  if (count < 0) return std::nullopt;
  return text;
}

std::optional<uint64_t> resident_bytes(uint32_t pid) {
  static const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto text = read_proc("/proc/" + std::to_string(pid) + "/statm");
  if (!text) return std::nullopt;
  std::string_view rest = *text;
  take_word(rest);  // address space
  uint64_t pages = 0;
  if (!number(take_word(rest), pages) || pages == 0) return std::nullopt;
  return pages * page_bytes;
}

std::vector<uint32_t> process_tree(uint32_t root, const std::set<uint32_t>& left_out) {
  std::vector<uint32_t> tree{root};
  std::set<uint32_t> seen{root};
  std::multimap<uint32_t, uint32_t> all;
  if (!has_children_files()) all = all_by_parent();
  for (size_t at = 0; at < tree.size(); ++at) {
    std::vector<uint32_t> children;
    const auto [first, last] = all.equal_range(tree[at]);
    for (auto entry = first; entry != last; ++entry) children.push_back(entry->second);
    if (has_children_files()) children = children_by_thread(tree[at]);
    for (const uint32_t child : children) {
      if (!left_out.contains(child) && seen.insert(child).second) tree.push_back(child);
    }
  }
  return tree;
}

}  // namespace fragscope::capture
