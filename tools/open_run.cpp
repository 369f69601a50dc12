#include "tools/open_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <sstream>

#include "capture/recover.h"
#include "import/read_snapshot.h"
#include "import/snapshot_to_trace.h"
#include "log/log_layout.h"
#include "log/shared_region.h"
#include "replay/process_facts.h"
#include "tools/command.h"
#include "trace/text_events.h"

namespace fragscope::tools {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMaxTextTrace = 256ull << 20;

// <pid>-<start_ticks>-<random>.<extension>
struct ProcessName {
  uint32_t pid = 0;
  uint64_t start_ticks = 0;
};

std::optional<ProcessName> parse_name(const fs::path& path) {
  const std::string stem = path.stem();
  ProcessName name;
  const char* end = stem.data() + stem.size();
  const auto pid = std::from_chars(stem.data(), end, name.pid);
  if (pid.ec != std::errc() || pid.ptr == end || *pid.ptr != '-') return std::nullopt;
  const auto ticks = std::from_chars(pid.ptr + 1, end, name.start_ticks);
  if (ticks.ec != std::errc()) return std::nullopt;
  return name;
}

std::vector<fs::path> files_of(const fs::path& directory, const char* extension) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(directory, failed)) {
    if (entry.path().extension() == extension) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

Result<trace::TraceReader> open_log(const fs::path& path) {
  const auto name = parse_name(path);
  const bool alive = name && capture::process_is_alive(name->pid, name->start_ticks);
  auto bytes = capture::convert_log(path, alive);
  if (!bytes.ok()) return bytes.error();
  return trace::TraceReader::open_bytes(std::move(bytes).value(), path);
}

std::string line_of(const Error& error) {
  return error.offset ? fmt::format("{} (byte {})", error.text, *error.offset) : error.text;
}

// What became of a log that took the place of its trace: why the trace could not be used. An empty
// one was not begun yet, or the disk was full.
void warn_of_unusable(const fs::path& path, std::vector<std::string>& warnings) {
  std::error_code failed;
  if (fs::file_size(path, failed) == 0 && !failed) return;
  const auto trace = trace::TraceReader::open_file(path);
  if (!trace) warnings.push_back(line_of(trace.error()) + "; its log was read instead");
}

Result<trace::TraceReader> open_trace(const fs::path& path,
                                      const std::vector<std::string>& log_directories,
                                      std::vector<std::string>& warnings) {
  const std::string log = capture::find_log(path, log_directories);
  if (log.empty()) return trace::TraceReader::open_file(path);
  auto bytes = capture::recover_process(path, log);
  if (!bytes.ok()) return trace::TraceReader::open_file(path);
  warn_of_unusable(path, warnings);
  return trace::TraceReader::open_bytes(std::move(bytes).value(), path);
}

// The readers of a run directory, and the first reason why one of its files has none.
struct Opened {
  OpenRun run;
  std::optional<Error> first_error;
  size_t files = 0;

  void take(Result<trace::TraceReader> reader) {
    ++files;
    if (reader.ok()) {
      run.processes.push_back(std::move(reader).value());
      return;
    }
    run.warnings.push_back(line_of(reader.error()));
    if (!first_error) first_error = reader.error();
  }
};

void open_files(const fs::path& directory, Opened& opened) {
  std::vector<std::string> log_directories = {directory};
  if (opened.run.info && !opened.run.info->log_directory.empty()) {
    log_directories.push_back(opened.run.info->log_directory);
  }
  std::set<std::string> seen;
  for (const fs::path& path : files_of(directory, ".fst")) {
    seen.insert(path.stem());
    opened.take(open_trace(path, log_directories, opened.run.warnings));
  }
  for (const std::string& logs : log_directories) {
    for (const fs::path& path : files_of(logs, ".fslog")) {
      if (seen.insert(path.stem()).second) opened.take(open_log(path));
    }
  }
}

void read_host(Opened& opened) {
  auto host = trace::read_host_memory(opened.run.path);
  if (!host.ok()) {
    opened.run.warnings.push_back(line_of(host.error()));
    return;
  }
  if (!host->problem.empty()) opened.run.warnings.push_back(host->problem);
  if (!host->samples.empty()) opened.run.host = std::move(host).value();
}

Result<OpenRun> open_directory(const std::string& path) {
  Opened opened;
  opened.run.path = path;
  auto info = trace::read_run_info(path);
  if (info.ok()) {
    opened.run.info = std::move(info).value();
  } else if (info.error().code != ErrorCode::kNotFound) {  // a plain preload writes none
    opened.run.warnings.push_back(line_of(info.error()));
  }
  open_files(path, opened);
  read_host(opened);
  if (opened.files == 0 && !opened.run.info) {
    if (info.error().code != ErrorCode::kNotFound) return info.error();
    if (fs::exists(fs::path(path) / log::kFileLimitName)) {
      return Error{ErrorCode::kNoSpace,
                   fmt::format("{}: nothing was recorded: the files of the process may not be as "
                               "large as a log of 3 MiB (ulimit -f): raise the limit, or use "
                               "fragscope run, which takes it into account",
                               path)};
    }
    return Error{ErrorCode::kForeign, fmt::format("{}: not a run directory (no run.json, no "
                                                  "traces)",
                                                  path)};
  }
  if (opened.run.processes.empty() && opened.first_error) return *opened.first_error;
  const auto started = [](const trace::TraceReader& reader) {
    return std::pair(reader.process().monotonic_ns, reader.process().pid);
  };
  std::sort(opened.run.processes.begin(), opened.run.processes.end(),
            [&](const auto& left, const auto& right) { return started(left) < started(right); });
  return std::move(opened.run);
}

std::string read_start(const std::string& path, uint64_t limit) {
  std::ifstream file(path, std::ios::binary);
  std::string text(limit, '\0');
  file.read(text.data(), static_cast<std::streamsize>(limit));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

bool looks_like_text(std::string_view start) {
  return !start.empty() && std::all_of(start.begin(), start.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 || byte == '\n' || byte == '\r' || byte == '\t';
  });
}

Result<trace::TraceReader> open_one(const std::string& path) {
  const std::string start = read_start(path, 256);
  if (start.starts_with(std::string_view(log::kMagic, sizeof log::kMagic))) return open_log(path);
  if (imported::looks_like_pickle(std::as_bytes(std::span(start)))) {
    return imported::open_snapshot(path);
  }
  if (!looks_like_text(start)) return trace::TraceReader::open_file(path);
  return trace::parse_text_trace(read_start(path, kMaxTextTrace), path);
}

}  // namespace

Result<OpenRun> open_run(const std::string& path) {
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  if (!fs::exists(status)) {
    const bool missing = !failed || failed == std::errc::no_such_file_or_directory;
    return Error{
        missing ? ErrorCode::kNotFound : ErrorCode::kPermission,
        fmt::format("{}: {}", path, missing ? "no such file or directory" : failed.message())};
  }
  if (fs::is_directory(status)) return open_directory(path);
  if (!fs::is_regular_file(status)) {
    return Error{ErrorCode::kForeign, fmt::format("{}: neither a file nor a directory", path)};
  }
  auto reader = open_one(path);
  if (!reader.ok()) return reader.error();
  OpenRun run;
  run.path = path;
  run.processes.push_back(std::move(reader).value());
  return run;
}

std::vector<std::string> losses_of(const trace::ProcessInfo& process) {
  std::vector<std::string> lines;
  const auto add = [&](uint64_t events, const char* what) {
    if (events == 0) return;
    lines.push_back(fmt::format("process {}: {} events {}: the figures are of the others alone",
                                process.pid, events, what));
  };
  const replay::ProcessFacts facts = replay::facts_of(process);
  add(facts.dropped_events, "were dropped, the log was full");
  if (facts.overwritten_events > 0) {
    lines.push_back(fmt::format("process {}: {}", process.pid, replay::overwritten_text(facts)));
  }
  add(facts.unwritten_events, "were not written (--max-trace)");
  return lines;
}

std::vector<std::string> all_warnings(const OpenRun& run) {
  std::vector<std::string> lines = run.warnings;
  for (const trace::TraceReader& reader : run.processes) {
    if (reader.damage()) lines.push_back(reader.damage()->text);
    for (std::string& line : losses_of(reader.process())) lines.push_back(std::move(line));
    const std::string& shim = reader.process().shim_version;
    const std::string tool = run.info ? run.info->fragscope_version : "";
    if (!shim.empty() && !tool.empty() && shim != tool) {
      lines.push_back(fmt::format(
          "process {} was recorded by libfragscope.so {}, the run by fragscope {}: an older "
          "library comes before the right one in LD_PRELOAD or on the library path",
          reader.process().pid, shim, tool));
    }
  }
  return lines;
}

int reading_exit_code(const OpenRun& run, uint64_t events) {
  if (events > 0) {
    for (const std::string& line : all_warnings(run)) warn(line);
    return kExitOk;
  }
  for (const std::string& line : run.warnings) warn(line);
  for (const trace::TraceReader& reader : run.processes) {
    if (!reader.damage()) continue;
    return fail(reader.damage()->text + "; no event could be read", kExitInput);
  }
  return kExitNothingRecorded;
}

}  // namespace fragscope::tools
