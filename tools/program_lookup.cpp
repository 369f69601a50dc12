#include "tools/program_lookup.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace fragscope::tools {
namespace fs = std::filesystem;
namespace {

constexpr int kMaxInterpreterDepth = 4;  // the kernel's own limit on nested `#!`
constexpr size_t kHeadBytes = 4096;

constexpr std::array kLaunchers = {"env",    "nice",    "ionice", "nohup", "timeout", "time",
                                   "stdbuf", "numactl", "setsid", "chrt",  "taskset"};

std::string base_name(std::string_view path) { return fs::path(path).filename(); }

bool is_python_name(std::string_view path) {
  const std::string name = base_name(path);
  return name.starts_with("python") && name.find_first_not_of("0123456789.t", 6) == name.npos;
}

std::string read_head(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string head(kHeadBytes, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return head;
}

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// pip writes  #!/bin/sh\n'''exec' "/long path/bin/python" "$0" "$@"  where a `#!` line would be too
// long or its path has a space.
std::optional<std::string> trampoline_target(const std::string& head) {
  const size_t exec = head.find("'''exec' ");
  if (exec == std::string::npos) return std::nullopt;
  size_t start = exec + std::strlen("'''exec' ");
  const bool quoted = start < head.size() && head[start] == '"';
  if (quoted) ++start;
  const size_t end = head.find(quoted ? '"' : ' ', start);
  if (end == std::string::npos) return std::nullopt;
  return head.substr(start, end - start);
}

std::optional<std::string> interpreter_of(const std::string& path, std::string_view path_variable) {
  const std::string head = read_head(path);
  if (!head.starts_with("#!")) return std::nullopt;
  const std::vector<std::string> words = split_words(head.substr(2, head.find('\n') - 2));
  if (words.empty()) return std::nullopt;
  if (base_name(words[0]) == "env") {
    for (size_t i = 1; i < words.size(); ++i) {
      if (words[i][0] == '-' || words[i].find('=') != std::string::npos) continue;
      const auto found = find_program(words[i], path_variable);
      return found.ok() ? std::optional(found.value()) : std::nullopt;
    }
    return std::nullopt;
  }
  if (const auto target = trampoline_target(head)) return target;
  return words[0];
}

std::optional<std::string> python_of_program(const std::string& name,
                                             std::string_view path_variable) {
  const auto found = find_program(name, path_variable);
  if (!found.ok()) return std::nullopt;
  std::string path = found.value();
  for (int depth = 0; depth < kMaxInterpreterDepth; ++depth) {
    if (is_python_name(path)) return path;
    const auto next = interpreter_of(path, path_variable);
    if (!next) return std::nullopt;
    path = *next;
  }
  return std::nullopt;
}

Status check_executable(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    const auto code = errno == EACCES ? ErrorCode::kPermission : ErrorCode::kNotFound;
    return Error{code, fmt::format("{}: {}", path, std::strerror(errno))};
  }
  if (S_ISDIR(status.st_mode)) {
    return Error{ErrorCode::kPermission, fmt::format("{}: is a directory", path)};
  }
  if (::access(path.c_str(), X_OK) != 0) {
    return Error{ErrorCode::kPermission, fmt::format("{}: {}", path, std::strerror(errno))};
  }
  return Done{};
}

template <typename Ehdr, typename Phdr>
bool lacks_loader(const std::string& head) {
  Ehdr header{};
  if (head.size() < sizeof header) return false;
  std::memcpy(&header, head.data(), sizeof header);
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Phdr segment{};
    const size_t at = header.e_phoff + size_t{i} * sizeof segment;
    if (at > head.size() || head.size() - at < sizeof segment) return false;
    std::memcpy(&segment, head.data() + at, sizeof segment);
    if (segment.p_type == PT_INTERP) return false;
  }
  return header.e_type == ET_EXEC || header.e_type == ET_DYN;
}

}  // namespace

Result<std::string> find_program(const std::string& name, std::string_view path_variable) {
  if (name.empty()) return Error{ErrorCode::kNotFound, "the command is an empty word"};
  if (name.find('/') != std::string::npos) {
    const Status status = check_executable(name);
    if (!status.ok()) return status.error();
    return name;
  }
  std::optional<Error> denied;
  std::string_view rest = path_variable;
  while (true) {
    const size_t colon = rest.find(':');
    const std::string_view entry = rest.substr(0, colon);
    const std::string path = (entry.empty() ? "." : std::string(entry)) + "/" + name;
    const Status status = check_executable(path);
    if (status.ok()) return path;
    if (status.error().code == ErrorCode::kPermission && !denied) denied = status.error();
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  if (denied) return *denied;
  return Error{ErrorCode::kNotFound, fmt::format("{}: command not found", name)};
}

std::optional<std::string> find_python(const std::vector<std::string>& command,
                                       std::string_view path_variable) {
  if (command.empty()) return std::nullopt;
  const std::string name = base_name(command[0]);
  const auto is_name = [&](const char* launcher) { return name == launcher; };
  if (std::none_of(kLaunchers.begin(), kLaunchers.end(), is_name)) {
    return python_of_program(command[0], path_variable);
  }
  for (size_t i = 1; i < command.size(); ++i) {
    if (is_python_name(command[i])) return python_of_program(command[i], path_variable);
  }
  return std::nullopt;
}

std::optional<std::string> why_not_preloadable(const std::string& program) {
  struct stat status {};
  if (::stat(program.c_str(), &status) != 0) return std::nullopt;
  if ((status.st_mode & (S_ISUID | S_ISGID)) != 0 && ::geteuid() != 0) {
    return fmt::format("{} is set-uid: the loader ignores preloaded libraries", program);
  }
  const std::string head = read_head(program);
  if (head.size() <= EI_CLASS || std::memcmp(head.data(), ELFMAG, SELFMAG) != 0) {
    return std::nullopt;
  }
  if (head[EI_CLASS] == ELFCLASS32) {
    return fmt::format("{} is a 32-bit program; fragscope is 64-bit", program);
  }
  if (lacks_loader<Elf64_Ehdr, Elf64_Phdr>(head)) {
    return fmt::format("{} is statically linked: nothing can be preloaded into it", program);
  }
  return std::nullopt;
}

}  // namespace fragscope::tools
