// The one user of nlohmann-json in src/: run.json is small and written once or twice per run.
#include "trace/run_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file_limit.h"
#include "trace/byte_source.h"

namespace fragscope::trace {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxRunInfoBytes = 64 << 20;
constexpr int kSchema = 1;

Error system_error(const std::string& path, const char* what, int error) {
  ErrorCode code = ErrorCode::kPermission;
  if (error == ENOENT || error == ENOTDIR) code = ErrorCode::kNotFound;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) code = ErrorCode::kNoSpace;
  return {code, path + ": cannot " + what + ": " + std::strerror(error)};
}

const char* kind_text(ExitKind kind) {
  switch (kind) {
    case ExitKind::exited:
      return "exited";
    case ExitKind::signaled:
      return "signaled";
    case ExitKind::vanished:
      return "vanished";
    case ExitKind::running:
      break;
  }
  return "running";
}

json exit_json(const ProcessExit& exit) {
  json out{{"kind", kind_text(exit.kind)}, {"code", nullptr}};
  if (exit.kind == ExitKind::exited || exit.kind == ExitKind::signaled) out["code"] = exit.code;
  return out;
}

// Throws json::exception on a wrong type.
ProcessExit exit_of(const json& in) {
  ProcessExit exit;
  const std::string kind = in.at("kind");
  for (const ExitKind known : {ExitKind::exited, ExitKind::signaled, ExitKind::vanished}) {
    if (kind == kind_text(known)) exit.kind = known;
  }
  if (!in.at("code").is_null()) exit.code = in.at("code");
  return exit;
}

std::string to_text(const RunInfo& info) {
  json processes = json::array();
  for (const RunProcess& process : info.processes) {
    processes.push_back({{"pid", process.pid},
                         {"start_ticks", process.start_ticks},
                         {"trace_file", process.trace_file},
                         {"exit", exit_json(process.exit)}});
  }
  const json out{{"schema", info.schema},
                 {"fragscope_version", info.fragscope_version},
                 {"command", info.command},
                 {"start_time", info.start_time},
                 {"host", info.host},
                 {"gpu", info.gpu},
                 {"log_directory", info.log_directory},
                 {"state", info.sealed ? "sealed" : "live"},
                 {"exit", exit_json(info.exit)},
                 {"notes", info.notes},
                 {"processes", processes}};
  // Arguments and paths need not be UTF-8; JSON does.
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

// What stands wrong in a run.json.
struct BadValue {
  std::string what;
};

template <typename T>
void take(const json& in, const char* key, T& out) {
  try {
    out = in.at(key).get<T>();
  } catch (const json::exception&) {
    throw BadValue{std::string("\"") + key + "\" is missing or not of the type it should be"};
  }
}

void take(const json& in, const char* key, ProcessExit& out) {
  try {
    out = exit_of(in.at(key));
  } catch (const json::exception&) {
    throw BadValue{std::string("\"") + key + "\" is missing or does not tell how a process ended"};
  }
}

RunProcess process_from_json(const json& in) {
  RunProcess process;
  take(in, "pid", process.pid);
  take(in, "start_ticks", process.start_ticks);
  take(in, "trace_file", process.trace_file);
  // A file of the run directory; never a way out of it.
  if (process.trace_file.find('/') != std::string::npos) {
    throw BadValue{"trace_file with a path: " + process.trace_file};
  }
  take(in, "exit", process.exit);
  return process;
}

// Throws BadValue.
RunInfo from_json(const json& in) {
  RunInfo info;
  std::string state;
  std::vector<json> processes;
  take(in, "schema", info.schema);
  take(in, "fragscope_version", info.fragscope_version);
  take(in, "command", info.command);
  take(in, "start_time", info.start_time);
  take(in, "host", info.host);
  take(in, "gpu", info.gpu);
  take(in, "log_directory", info.log_directory);
  take(in, "state", state);
  take(in, "exit", info.exit);
  take(in, "notes", info.notes);
  take(in, "processes", processes);
  info.sealed = state == "sealed";
  for (const json& entry : processes) info.processes.push_back(process_from_json(entry));
  return info;
}

Status write_all(int fd, const std::string& path, std::string_view text) {
  if (!file_may_grow_to(text.size())) return system_error(path, "write", EFBIG);
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(path, "write", errno);
    text.remove_prefix(static_cast<size_t>(count));
  }
  return Done{};
}

// A full disk takes no second file; what the first one occupies already can be written again.
bool write_in_place(const std::string& path, std::string_view text) {
  constexpr uint64_t kBlockBytes = 512;
  const int fd = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat file {};
  const bool fits = ::fstat(fd, &file) == 0 && S_ISREG(file.st_mode) &&
                    text.size() <= static_cast<uint64_t>(file.st_blocks) * kBlockBytes;
  const bool written = fits && write_all(fd, path, text).ok() &&
                       ::ftruncate(fd, static_cast<off_t>(text.size())) == 0;
  ::close(fd);
  return written;
}

Status replace_run_info(const std::string& path, std::string_view text) {
  const std::string temporary = path + "." + std::to_string(::getpid()) + ".tmp";
  ::unlink(temporary.c_str());
  const int fd =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return system_error(path, "create", errno);
  Status status = ::fchmod(fd, 0600) == 0 ? write_all(fd, path, text)
                                          : Status(system_error(path, "set the mode of", errno));
  ::close(fd);
  if (status && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = system_error(path, "replace", errno);
  }
  if (!status) ::unlink(temporary.c_str());
  return status;
}

}  // namespace

Status create_run_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0) {
    // mkdir obeys the umask, which may take our own rights away.
    if (::chmod(path.c_str(), 0700) != 0) return system_error(path, "set the mode of", errno);
    return Done{};
  }
  if (errno != EEXIST) return system_error(path, "create the directory", errno);
  std::error_code error;
  const bool empty = std::filesystem::is_empty(path, error);
  if (error || !std::filesystem::is_directory(path, error)) {
    return Error{ErrorCode::kInvalidArgument, path + ": exists and is not a directory to use"};
  }
  if (!empty) {
    return Error{ErrorCode::kInvalidArgument,
                 path + ": exists and is not empty; give another -o or remove it"};
  }
  if (::chmod(path.c_str(), 0700) != 0) return system_error(path, "set the mode of", errno);
  return Done{};
}

Status write_run_info(const std::string& directory, const RunInfo& info) {
  const std::string path = directory + "/run.json";
  const std::string text = to_text(info);
  Status status = replace_run_info(path, text);
  const bool full = !status && status.error().code == ErrorCode::kNoSpace;
  if (full && write_in_place(path, text)) return Done{};
  return status;
}

Result<RunInfo> read_run_info(const std::string& directory) {
  const std::string path = directory + "/run.json";
  auto source = ByteSource::open_file(path);
  if (!source) return source.error();
  if (source->size() > kMaxRunInfoBytes) {
    return Error{ErrorCode::kForeign, path + ": too large for a run.json of ours"};
  }
  const auto bytes = source->read(0, source->size());
  const char* text = reinterpret_cast<const char*>(bytes.data());
  const json parsed = json::parse(text, text + bytes.size(), nullptr, false);
  if (!parsed.is_object()) return Error{ErrorCode::kDamaged, path + ": not a JSON object"};
  const auto schema = parsed.find("schema");
  if (schema == parsed.end() || !schema->is_number_integer()) {
    return Error{ErrorCode::kForeign, path + ": no run.json of ours (no schema)"};
  }
  if (*schema > kSchema) {
    return Error{ErrorCode::kNewerVersion, path + ": schema " + schema->dump() +
                                               ", this build reads up to " +
                                               std::to_string(kSchema) + "; use a newer fragscope"};
  }
  try {
    return from_json(parsed);
  } catch (const BadValue& bad) {
    return Error{ErrorCode::kDamaged, path + ": " + bad.what};
  }
}

}  // namespace fragscope::trace
