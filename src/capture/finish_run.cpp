#include "capture/finish_run.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "capture/process_state.h"
#include "capture/recover.h"
#include "capture/trace_file.h"
#include "log/log_control.h"
#include "trace/run_directory.h"

namespace fragscope::capture {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> logs_in(const std::string& directory) {
  std::vector<std::string> logs;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".fslog") logs.push_back(entry->path().string());
  }
  std::sort(logs.begin(), logs.end());
  return logs;
}

// `elsewhere` is the run directory itself where logs are kept on disk, written in another way
// maybe: absolute, through a link, with a slash at its end.
std::vector<std::string> logs_of_run(const std::string& run_directory,
                                     const std::string& elsewhere) {
  std::vector<std::string> logs = logs_in(run_directory);
  std::error_code error;
  if (elsewhere.empty() || fs::equivalent(elsewhere, run_directory, error)) return logs;
  for (std::string& log : logs_in(elsewhere)) logs.push_back(std::move(log));
  return logs;
}

bool has_collector(const std::string& log) {
  const int fd = ::open(log.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  const bool claimed = log::is_claimed(fd);
  ::close(fd);
  return claimed;
}

// Under a name that nobody reads until it is whole and on the disk.
Status replace_trace(const std::string& path, const std::vector<std::byte>& bytes) {
  const std::string temporary = path + ".new";
  ::unlink(temporary.c_str());
  auto file = TraceFile::create(temporary);
  if (!file) return file.error();
  Status written = (*file)->write(bytes);
  if (written) written = (*file)->sync();
  if (written && ::rename(temporary.c_str(), path.c_str()) == 0) return Done{};
  ::unlink(temporary.c_str());
  if (!written) return written.error();
  return Error{ErrorCode::kPermission, path + ": cannot be replaced"};
}

Status finish_log(const std::string& log, const std::string& trace) {
  std::error_code error;
  auto bytes = fs::exists(trace, error) ? recover_process(trace, log) : convert_log(log, false);
  if (!bytes) return bytes.error();
  if (Status replaced = replace_trace(trace, *bytes); !replaced) return replaced;
  ::unlink(log.c_str());
  return Done{};
}

void take_log(const std::string& directory, const std::string& log, FinishedRun& result) {
  if (is_log_of_living_process(log)) {
    ++result.living;
    return;
  }
  const std::string trace =
      (fs::path(directory) / (fs::path(log).stem().string() + ".fst")).string();
  if (const Status finished = finish_log(log, trace); finished) {
    ++result.finished;
  } else {
    result.warnings.push_back(finished.error().text + "; its log stays: " + log);
  }
}

}  // namespace

// <pid>-<start_ticks>-<random>.fslog
bool is_log_of_living_process(const std::string& log_path) {
  const std::string name = fs::path(log_path).filename().string();
  const char* const end = name.data() + name.size();
  uint32_t pid = 0;
  uint64_t start_ticks = 0;
  const auto first = std::from_chars(name.data(), end, pid);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return false;
  const auto second = std::from_chars(first.ptr + 1, end, start_ticks);
  return second.ec == std::errc() && process_is_alive(pid, start_ticks);
}

Result<FinishedRun> finish_run(const std::string& run_directory) {
  auto info = trace::read_run_info(run_directory);
  if (!info && info.error().code != ErrorCode::kNotFound) return info.error();
  const std::vector<std::string> logs =
      logs_of_run(run_directory, info ? info->log_directory : std::string());
  if (std::any_of(logs.begin(), logs.end(), has_collector)) {
    return Error{ErrorCode::kUnsupported, run_directory + ": is being recorded"};
  }
  FinishedRun result;
  for (const std::string& log : logs) take_log(run_directory, log, result);
  const bool was_whole = info && info->sealed && result.finished == 0;
  if (!info || was_whole || result.living > 0 || !result.warnings.empty()) return result;
  info->sealed = true;
  info->log_directory.clear();
  if (info->exit.kind == trace::ExitKind::running) info->exit.kind = trace::ExitKind::vanished;
  for (trace::RunProcess& process : info->processes) {
    if (process.exit.kind == trace::ExitKind::running) {
      process.exit.kind = trace::ExitKind::vanished;
    }
  }
  info->notes["finished_later"] =
      "the recorder had gone before its processes ended; their logs were collected afterwards";
  if (Status written = trace::write_run_info(run_directory, *info); !written) {
    return written.error();
  }
  return result;
}

}  // namespace fragscope::capture
