#include "capture/process_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace fragscope::capture {
namespace {

// The n-th word of `text`, from 0.
std::string_view word(std::string_view text, size_t n) {
  for (; n > 0; --n) {
    const size_t blank = text.find(' ');
    if (blank == std::string_view::npos) return {};
    text.remove_prefix(blank + 1);
  }
  return text.substr(0, text.find_first_of(" \n"));
}

bool number(std::string_view text, uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::optional<ProcStat> parse_proc_stat(std::string_view text) {
  // The name in parentheses may hold blanks and parentheses; the last one ends it.
  const size_t name_end = text.rfind(") ");
  if (name_end == std::string_view::npos) return std::nullopt;
  const std::string_view rest = text.substr(name_end + 2);  // from field 3 on
  ProcStat stat;
  const size_t name_start = text.find('(');
  if (name_start < name_end) stat.name = text.substr(name_start + 1, name_end - name_start - 1);
  const std::string_view state = word(rest, 0);
  if (state.size() != 1 || !number(word(rest, 4 - 3), stat.parent) ||
      !number(word(rest, 20 - 3), stat.threads) || !number(word(rest, 22 - 3), stat.start_ticks)) {
    return std::nullopt;
  }
  stat.state = state[0];
  return stat;
}

std::optional<ProcStat> read_proc_stat(uint32_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  char text[1024];
  const ssize_t count = ::read(fd, text, sizeof text);
  ::close(fd);
  if (count <= 0) return std::nullopt;
  return parse_proc_stat({text, static_cast<size_t>(count)});
}

namespace {

bool is_gone(const ProcStat& stat) {
  const bool dead = stat.state == 'Z' || stat.state == 'X' || stat.state == 'x';
  return dead && stat.threads <= 1;
}

bool is_alive_here(uint32_t pid, uint64_t start_ticks) {
  const auto stat = read_proc_stat(pid);
  if (!stat) return false;
  if (start_ticks != 0 && stat->start_ticks != start_ticks) return false;
  return !is_gone(*stat);
}

}  // namespace

// NSpid:\t4711\t1
std::vector<uint32_t> parse_pids(std::string_view status) {
  constexpr std::string_view kKey = "\nNSpid:";
  std::vector<uint32_t> pids;
  const size_t at = status.find(kKey);
  if (at == std::string_view::npos) return pids;
  std::string_view rest = status.substr(at + kKey.size());
  rest = rest.substr(0, rest.find('\n'));
  while (!rest.empty()) {
    rest.remove_prefix(std::min(rest.find_first_not_of("\t "), rest.size()));
    uint32_t pid = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), pid);
    if (error != std::errc()) break;
    pids.push_back(pid);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  }
  return pids;
}

std::vector<uint32_t> pids_of(uint32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return parse_pids(text);
}

std::optional<uint32_t> pid_here(uint32_t pid, uint64_t start_ticks) {
  if (is_alive_here(pid, start_ticks)) return pid;
  if (start_ticks == 0) return std::nullopt;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    uint64_t here = 0;
    if (!number(name, here) || !is_alive_here(static_cast<uint32_t>(here), start_ticks)) continue;
    const std::vector<uint32_t> pids = pids_of(static_cast<uint32_t>(here));
    if (pids.size() > 1 && std::find(pids.begin() + 1, pids.end(), pid) != pids.end()) {
      return static_cast<uint32_t>(here);
    }
  }
  return std::nullopt;
}

bool process_is_alive(uint32_t pid, uint64_t start_ticks) {
  return pid_here(pid, start_ticks).has_value();
}

bool is_zombie(uint32_t pid, uint64_t start_ticks) {
  const auto stat = read_proc_stat(pid);
  if (!stat || (start_ticks != 0 && stat->start_ticks != start_ticks)) return false;
  return is_gone(*stat);
}

bool is_unreaped_child(uint32_t pid) {
  const auto stat = read_proc_stat(pid);
  return stat && is_gone(*stat) && stat->parent == static_cast<uint64_t>(::getpid());
}

}  // namespace fragscope::capture
