#include "tools/torch_adaptor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "shim/torch_adaptor/build_command.h"
#include "shim/torch_adaptor/torch_adaptor.h"
#include "tools/program_lookup.h"
#include "tools/subprocess.h"

namespace fragscope::tools {
namespace fs = std::filesystem;
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string cache_root() {
  const std::string cache = variable("XDG_CACHE_HOME");
  return (cache.empty() ? variable("HOME") + "/.cache" : cache) + "/fragscope";
}

Error system_error(const std::string& path) {
  const auto code =
      errno == ENOSPC || errno == EDQUOT ? ErrorCode::kNoSpace : ErrorCode::kPermission;
  return Error{code, fmt::format("{}: {}", path, std::strerror(errno))};
}

// Held for the life of the object; released by the kernel if we are killed.
class BuildLock {
 public:
  explicit BuildLock(const std::string& directory)
      : fd_(::open((directory + "/.lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW,
                   0600)) {
    if (fd_ >= 0) ::flock(fd_, LOCK_EX);
  }
  ~BuildLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  BuildLock(const BuildLock&) = delete;
  BuildLock& operator=(const BuildLock&) = delete;
  bool held() const { return fd_ >= 0; }

 private:
  int fd_;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// FNV-1a: tells one version of our source from another, nothing more.
std::string fingerprint(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

// The note beside an adaptor: what it was built for and from. Same note = nothing to build.
std::string note_of(const TorchInstall& torch, const std::string& source) {
  return fmt::format("torch={}\nsource={}\n", torch.version, fingerprint(source));
}

std::vector<std::string> header_directories(const TorchInstall& torch) {
  std::vector<std::string> candidates = torch.include;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (!variable(name).empty()) candidates.push_back(variable(name) + "/include");
  }
  const std::string major = torch.cuda.substr(0, torch.cuda.find('.'));
  candidates.push_back(cache_root() + "/cuda-headers/" + major + "/include");
  candidates.push_back("/usr/local/cuda/include");
  return candidates;
}

struct TorchRelease {
  int major = 0;
  int minor = 0;
};

TorchRelease release_of(const std::string& version) {
  TorchRelease release;
  std::sscanf(version.c_str(), "%d.%d", &release.major, &release.minor);
  return release;
}

// The first directory that has the runtime's headers is named to the build; the others may hold
// what that one leaves out (crt/host_defines.h of the CUDA 12 wheels).
std::vector<std::string> compile_command(const AdaptorRequest& request, const std::string& output) {
  const TorchRelease release = release_of(request.torch.version);
  TorchAdaptorBuild build;
  build.compiler = find_compiler();
  build.source = request.installation.adaptor_source;
  build.torch = request.torch.directory;
  build.output = output;
  build.torch_major = release.major;
  build.torch_minor = release.minor;
  std::vector<std::string> more;
  for (const std::string& directory : header_directories(request.torch)) {
    std::error_code ignored;
    if (!fs::is_directory(directory, ignored)) continue;
    if (build.cuda_include.empty() && fs::exists(directory + "/cuda_runtime_api.h", ignored)) {
      build.cuda_include = directory;
    } else {
      more.push_back("-isystem" + directory);
    }
  }
  std::vector<std::string> command = torch_adaptor_command(build);
  const auto source = std::find(command.begin(), command.end(), build.source);
  command.insert(source, more.begin(), more.end());
  return command;
}

std::string first_error(const std::string& text) {
  std::istringstream lines(text);
  std::string first;
  for (std::string line; std::getline(lines, line);) {
    if (first.empty()) first = line;
    if (line.find("error") != std::string::npos) return line;
  }
  return first;
}

Status compile(const AdaptorRequest& request, const std::string& path, const std::string& note) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  const auto done = run_helper(compile_command(request, temporary), helper_environment());
  std::error_code ignored;
  if (!done.ok() || done->exit_code != 0) {
    fs::remove(temporary, ignored);
    return Error{ErrorCode::kUnsupported,
                 fmt::format("the torch adaptor for {} does not compile: {}", request.torch.version,
                             done.ok() ? first_error(done->err) : done.error().text)};
  }
  const std::string note_path = fs::path(path).replace_extension(".txt");
  std::ofstream(note_path) << note;
  if (::chmod(temporary.c_str(), 0700) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0) {
    const Error error = system_error(path);
    fs::remove(temporary, ignored);
    return error;
  }
  return Done{};
}

Status check_torch(const TorchInstall& torch) {
  if (torch.cuda.empty()) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("torch {} is a build without CUDA", torch.version)};
  }
  const TorchRelease release = release_of(torch.version);
  if (!torch_has_tracker(release.major, release.minor)) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("torch {} has no usable trace tracker (2.4 and later have)", torch.version)};
  }
  return Done{};
}

}  // namespace

std::string adaptor_directory() {
  const std::string named = variable("FRAGSCOPE_TORCH_ADAPTOR_DIR");
  return named.empty() ? cache_root() + "/adaptors" : named;
}

std::string find_compiler() {
  const std::string path = variable("PATH");
  for (const std::string& name :
       {variable("CXX"), std::string("g++"), std::string("c++"), std::string("clang++")}) {
    if (!name.empty() && find_program(name, path).ok()) return name;
  }
  return {};
}

Result<AdaptorBuild> ensure_adaptor(const AdaptorRequest& request) {
  if (const Status usable = check_torch(request.torch); !usable.ok()) return usable.error();
  const std::string source = read_file(request.installation.adaptor_source);
  if (source.empty()) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is missing", request.installation.adaptor_source)};
  }
  std::error_code failed;
  fs::create_directories(request.directory, failed);
  ::chmod(request.directory.c_str(), 0700);
  const BuildLock lock(request.directory);
  if (!lock.held()) return system_error(request.directory);
  const std::string path = request.directory + "/" + request.torch.build_id + "-" +
                           std::to_string(FRAGSCOPE_TORCH_ADAPTOR_VERSION) + ".so";
  const std::string note = note_of(request.torch, source);
  const bool current =
      fs::exists(path, failed) && read_file(fs::path(path).replace_extension(".txt")) == note;
  if (current && !request.rebuild) return AdaptorBuild{path, false};
  if (find_compiler().empty()) {
    return Error{ErrorCode::kUnsupported,
                 "no C++ compiler to build the torch adaptor with (install g++, or set CXX)"};
  }
  if (request.progress) {
    request.progress(fmt::format("building the adaptor for torch {} (once, some seconds)",
                                 request.torch.version));
  }
  const Status built = compile(request, path, note);
  if (!built.ok()) return built.error();
  return AdaptorBuild{path, true};
}

std::vector<CachedAdaptor> list_adaptors(const std::string& directory) {
  std::vector<CachedAdaptor> found;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(directory, failed)) {
    if (entry.path().extension() != ".so") continue;
    const std::string note = read_file(fs::path(entry.path()).replace_extension(".txt"));
    const std::string torch =
        note.starts_with("torch=") ? note.substr(6, note.find('\n') - 6) : std::string();
    found.push_back({entry.path().stem(), entry.path(), torch});
  }
  return found;
}

Result<int> clean_adaptors(const std::string& directory) {
  int removed = 0;
  std::error_code failed;
  if (!fs::exists(directory, failed)) return removed;
  const BuildLock lock(directory);
  if (!lock.held()) return system_error(directory);
  std::vector<fs::path> doomed;
  for (const auto& entry : fs::directory_iterator(directory, failed)) {
    const std::string extension = entry.path().extension();
    if (extension == ".so" || extension == ".txt" || extension == ".tmp") {
      doomed.push_back(entry.path());
    }
  }
  for (const fs::path& path : doomed) {
    if (!fs::remove(path, failed)) return system_error(path);
    if (path.extension() == ".so") ++removed;
  }
  return removed;
}

}  // namespace fragscope::tools
