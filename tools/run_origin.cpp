#include "tools/run_origin.h"

#include <unistd.h>

#include <fstream>

#include "capture/process_state.h"

namespace fragscope::tools {

std::string utc_text(std::time_t time) {
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::vector<std::string> command_line_of(uint32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

// Ticks since the machine started, which /proc/stat tells in seconds ("btime 1700000000").
std::string start_time_of(uint32_t pid) {
  const auto stat = capture::read_proc_stat(pid);
  std::ifstream file("/proc/stat");
  std::string key;
  std::time_t started = 0;
  while (file >> key && key != "btime") {
    std::getline(file, key);
  }
  const long ticks = ::sysconf(_SC_CLK_TCK);
  if (!stat || !(file >> started) || ticks <= 0) return {};
  return utc_text(started + static_cast<std::time_t>(stat->start_ticks) / ticks);
}

}  // namespace fragscope::tools
