#include "capture/collector.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>

#include "capture/host_sampler.h"
#include "capture/process_log.h"
#include "capture/process_state.h"
#include "capture/spare_log.h"

namespace fragscope::capture {
namespace {

namespace fs = std::filesystem;
using Phase = ProcessLog::Phase;

bool has_trace(const ProcessLog& process) {
  return process.phase() == Phase::draining || process.phase() == Phase::sealed ||
         process.phase() == Phase::failed;
}

}  // namespace

struct Collector::State {
  CollectorOptions options;
  std::map<std::string, std::unique_ptr<ProcessLog>> logs;  // by path of the log
  std::vector<std::string> warnings;
  std::optional<HostSampler> host;
  std::optional<SpareLog> spare;
  bool run_info_refused = false;
  bool finished = false;

  void scan(const std::string& directory);
  void scan_all();
  void hold_bound();
  Status drain_all();
  Status write_run_info();
  void collect_run_info();
  void remove_log_directory();
  bool has_traces() const;
  void look_at_host();
  void keep(const Status& host_status);
  Summary summary() const;
};

void Collector::State::scan(const std::string& directory) {
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() != ".fslog" || logs.count(path.string()) != 0) continue;
    const fs::path trace = fs::path(options.run_directory) / (path.stem().string() + ".fst");
    logs[path.string()] = std::make_unique<ProcessLog>(path.string(), trace.string());
  }
}

void Collector::State::scan_all() {
  if (!options.log_directory.empty()) scan(options.log_directory);
  if (options.log_directory != options.run_directory) scan(options.run_directory);
}

void Collector::State::hold_bound() {
  if (options.max_trace_bytes == 0) return;
  uint64_t bytes = 0;
  for (const auto& entry : logs) bytes += entry.second->trace_bytes();
  if (bytes < options.max_trace_bytes) return;
  for (auto& entry : logs) entry.second->stop_writing();
}

// All logs are served even if one is refused; the first refusal is the answer.
Status Collector::State::drain_all() {
  Status first = Done{};
  bool changed = false;
  hold_bound();
  for (auto& entry : logs) {
    const Phase before = entry.second->phase();
    const Status status = entry.second->drain();
    changed = changed || entry.second->phase() != before;
    if (status) continue;
    warnings.push_back(status.error().text);
    if (first) first = status;
  }
  if (!changed) return first;
  const Status written = write_run_info();
  return first ? written : first;
}

// A refusal is told once; run.json is tried again with every change.
Status Collector::State::write_run_info() {
  collect_run_info();
  Status status = trace::write_run_info(options.run_directory, options.info);
  if (status) return status;
  if (run_info_refused) return Done{};
  run_info_refused = true;
  warnings.push_back(status.error().text);
  return status;
}

void Collector::State::collect_run_info() {
  trace::RunInfo& info = options.info;
  info.processes.clear();
  for (const auto& entry : logs) {
    if (has_trace(*entry.second)) info.processes.push_back(entry.second->run_process());
  }
  std::erase_if(info.notes, [](const auto& note) { return note.first.starts_with("warning."); });
  for (size_t i = 0; i < warnings.size(); ++i) {
    info.notes["warning." + std::to_string(i + 1)] = warnings[i];
  }
}

// What is known of the host is an extra: without it the run is recorded all the same.
void Collector::State::look_at_host() {
  if (!host) return;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  constexpr uint64_t kSecond = 1'000'000'000;
  const uint64_t now_ns =
      static_cast<uint64_t>(now.tv_sec) * kSecond + static_cast<uint64_t>(now.tv_nsec);
  keep(host->poll(now_ns, has_traces()));
}

bool Collector::State::has_traces() const {
  return std::any_of(logs.begin(), logs.end(),
                     [](const auto& entry) { return has_trace(*entry.second); });
}

void Collector::State::keep(const Status& host_status) {
  if (host_status) return;
  warnings.push_back(host_status.error().text + "; memory of the host is not written any more");
}

// The shim makes a log as *.fslog.new and renames it when its header is complete; one whose process
// was killed in between is empty. Whatever else is there is not ours, and keeps the directory.
void Collector::State::remove_log_directory() {
  const std::string& directory = options.log_directory;
  if (directory.empty() || directory == options.run_directory) return;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string path = entry.path().string();
    const uint32_t pid = ProcessLog::pid_of_name(path);
    if (entry.path().extension() == ".new" && pid != 0 && !process_is_alive(pid, 0)) {
      ::unlink(path.c_str());
    }
  }
  ::rmdir(directory.c_str());
}

Summary Collector::State::summary() const {
  Summary summary;
  for (const auto& entry : logs) {
    ProcessLog& process = *entry.second;
    if (process.alive()) ++summary.still_running;
    if (!has_trace(process)) continue;
    ++summary.processes;
    summary.events += process.events();
    summary.dropped_events += process.dropped_events();
    summary.torn_records += process.torn_records();
    summary.overwritten_events += process.overwritten_events();
    summary.overwritten_between += process.overwritten_between();
    summary.unwritten_events += process.unwritten_events();
  }
  summary.warnings = warnings;
  return summary;
}

Collector::Collector(std::unique_ptr<State> state) : state_(std::move(state)) {}
Collector::Collector(Collector&&) noexcept = default;
Collector& Collector::operator=(Collector&&) noexcept = default;
Collector::~Collector() = default;

Result<Collector> Collector::open(CollectorOptions options) {
  auto state = std::make_unique<State>();
  state->options = std::move(options);
  state->options.info.sealed = false;
  state->options.info.log_directory = state->options.log_directory;
  if (Status status = state->write_run_info(); !status) return status.error();
  const CollectorOptions& given = state->options;
  if (given.host_interval_ns != 0) {
    state->host.emplace(HostSamplerOptions{given.run_directory, given.log_directory, "/dev/shm",
                                           given.host_interval_ns, given.host_root});
  }
  if (given.spare_log) state->spare.emplace(given.log_directory);
  return Collector(std::move(state));
}

Status Collector::poll() {
  state_->scan_all();
  if (state_->spare) state_->spare->keep();
  Status drained = state_->drain_all();
  state_->look_at_host();
  return drained;
}

void Collector::note_exit(uint32_t pid, trace::ProcessExit exit) {
  // Logs that it made since the last poll are its own as well; logs that come later under this pid
  // belong to another process.
  state_->scan_all();
  for (auto& entry : state_->logs) {
    if (entry.second->pid() == pid) entry.second->note_exit(exit);
  }
  if (state_->host) state_->host->forget(pid);
}

void Collector::leave_out(uint32_t pid) {
  if (state_->host) state_->host->leave_out(pid);
}

void Collector::note(const std::string& key, const std::string& text) {
  state_->options.info.notes[key] = text;
}

std::vector<Collector::News> Collector::take_news() {
  std::vector<News> news;
  for (auto& entry : state_->logs) {
    if (const auto notices = entry.second->take_news()) {
      news.push_back({entry.second->pid(), *notices});
    }
  }
  return news;
}

uint64_t Collector::live_processes() const {
  return static_cast<uint64_t>(
      std::count_if(state_->logs.begin(), state_->logs.end(),
                    [](const auto& entry) { return entry.second->alive(); }));
}

Result<Summary> Collector::finish(trace::ProcessExit exit) {
  State& s = *state_;
  static_cast<void>(poll());  // what it reports is in the warnings
  s.spare.reset();
  if (s.host) s.keep(s.host->finish(s.has_traces()));
  bool complete = true;
  for (auto& entry : s.logs) {
    ProcessLog& process = *entry.second;
    if (process.phase() == Phase::draining) {
      if (const Status status = process.flush(); !status) {
        s.warnings.push_back(status.error().text);
      }
    }
    if (process.phase() == Phase::waiting && process.obstacle()) {
      s.warnings.push_back(process.obstacle()->text);
    }
    complete = complete && (process.phase() == Phase::sealed || process.phase() == Phase::unused);
  }
  s.options.info.exit = exit;
  s.options.info.sealed = complete;
  if (complete) {
    s.remove_log_directory();
    s.options.info.log_directory.clear();
  }
  s.collect_run_info();
  // What is known is told even if the disk takes no word of it.
  const Status written = trace::write_run_info(s.options.run_directory, s.options.info);
  if (!written && !s.run_info_refused) s.warnings.push_back(written.error().text);
  return s.summary();
}

}  // namespace fragscope::capture
