#include "capture/process_log.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "capture/process_state.h"
#include "trace/byte_source.h"

namespace fragscope::capture {
namespace {

// Slots between two publications of read_pos: some chunks of the trace.
constexpr uint64_t kDrainSlots = 65536;

}  // namespace

uint32_t ProcessLog::pid_of_name(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  uint32_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  return error == std::errc() && *end == '-' ? pid : 0;
}

ProcessLog::ProcessLog(std::string log_path, std::string trace_path)
    : log_path_(std::move(log_path)),
      trace_path_(std::move(trace_path)),
      pid_(pid_of_name(log_path_)) {}

bool ProcessLog::alive() const {
  if (phase_ != Phase::waiting && phase_ != Phase::draining) return false;
  if (noted_exit_ || pid_ == 0) return false;
  if (process_is_alive(pid(), start_ticks_)) return true;
  // Dead, but its parent has not waited for it: how it ended will be known then, from the caller or
  // from the kernel.
  return is_unreaped_child(pid()) || (watch_ && watch_->usable() && is_zombie(pid(), start_ticks_));
}

Status ProcessLog::drain() {
  if (phase_ != Phase::waiting && phase_ != Phase::draining) return Done{};
  if (!reader_ && !open()) {
    if (!alive() && is_blank()) discard(Phase::unused);
    return Done{};
  }
  // Asked before the log is read: what a process wrote before it went is then there to read.
  const bool is_alive = alive();
  if (phase_ == Phase::waiting) {
    const auto state = reader_->state();
    if (!state) return fail(state.error());
    const bool used =
        state->write_pos > 0 || state->ring_write_pos > 0 || state->dropped_events > 0;
    if (!used && !is_alive) discard(Phase::unused);
    if (!used) return Done{};
    if (Status status = start_trace(); !status) return fail(status.error());
  }
  if (Status status = take(is_alive); !status) return fail(status.error());
  if (Status status = look_for_news(is_alive); !status) return fail(status.error());
  if (is_alive) return Done{};
  return end();
}

// Killed before it had initialised its log: nothing can be in it.
bool ProcessLog::is_blank() const {
  auto source = trace::ByteSource::open_file(log_path_);
  if (!source) return false;
  const auto head = source->read(0, sizeof log::kMagic);
  return std::all_of(head.begin(), head.end(), [](std::byte b) { return b == std::byte{0}; });
}

// The header is complete once there is a record; before, the shim may still be filling it.
bool ProcessLog::open() {
  auto reader = log::LogReader::open(log_path_, log::LogReader::Access::drain);
  if (!reader) {
    obstacle_ = reader.error();
    return false;
  }
  const auto identity = reader->identity();
  if (!identity || identity->pid == 0) {
    obstacle_ = Error{ErrorCode::kForeign, log_path_ + ": its writer did not say who it is"};
    return false;
  }
  if (!reader->claim()) {
    obstacle_ = Error{ErrorCode::kPermission, log_path_ + ": another fragscope drains it already"};
    return false;
  }
  obstacle_.reset();
  pid_ = identity->pid;
  start_ticks_ = identity->start_ticks;
  pid_here_ = fragscope::capture::pid_here(pid_, start_ticks_).value_or(0);
  watch_.emplace(pid());
  reader_.emplace(std::move(reader).value());
  return true;
}

Status ProcessLog::start_trace() {
  const auto process = process_of(*reader_);
  if (!process) return process.error();
  pid_ = process->pid;
  start_ticks_ = process->start_ticks;
  auto file = TraceFile::create(trace_path_);
  if (!file) return file.error();
  file_ = std::move(file).value();
  auto writer = trace::TraceWriter::start(*file_, *process);
  if (!writer) return writer.error();
  writer_.emplace(std::move(writer).value());
  if (pid() != pid_) {
    Status told = writer_->add_property("host_pid", std::to_string(pid()));
    if (!told) return told;
  }
  converter_.emplace(*reader_, *writer_, UINT64_MAX);
  if (stopped_) converter_->stop_writing();
  flushed_position_ = reader_->position();
  phase_ = Phase::draining;
  return Done{};
}

Status ProcessLog::take(bool is_alive) {
  const auto state = reader_->state();
  if (!state) return state.error();
  dropped_events_ = state->dropped_events;
  const uint64_t most = std::clamp<uint64_t>(state->capacity_slots / 4, 1, kDrainSlots);
  // Asked before reading: what was in the log when somebody asked is then read below.
  const uint64_t flush_wanted = reader_->flush_wanted();
  // A live process is left after one lap, so that one busy log does not starve the others.
  uint64_t left = is_alive ? std::max(state->capacity_slots, state->ring_slots) : UINT64_MAX;
  while (left > 0) {
    const auto passed = reader_->read(*converter_, is_alive, std::min(most, left));
    if (!passed) return passed.error();
    if (converter_->error()) return *converter_->error();
    if (*passed == 0) return serve_flush(flush_wanted);
    left -= *passed;
    if (reader_->position() - flushed_position_ < most && reader_->unpublished() < 2 * most)
      continue;
    if (Status status = publish(); !status) return status;
  }
  return Done{};
}

// `fragscope ctl flush`: what was in the log when request `wanted` was made is in the file.
Status ProcessLog::serve_flush(uint64_t wanted) {
  if (wanted == flushes_done_) return Done{};
  if (Status status = publish(); !status) return status;
  flushes_done_ = wanted;
  reader_->set_flush_done(wanted);
  return Done{};
}

// Told after the fact: what the news is about was logged before, and is read and written here.
Status ProcessLog::look_for_news(bool is_alive) {
  const log::LogNotices now = reader_->notices();
  if (now.ooms == told_.ooms && now.warnings == told_.warnings) return Done{};
  told_ = now;
  has_news_ = true;
  if (Status status = take(is_alive); !status) return status;
  return publish();
}

std::optional<log::LogNotices> ProcessLog::take_news() {
  if (!has_news_) return std::nullopt;
  has_news_ = false;
  return told_;
}

uint64_t ProcessLog::dropped_events() {
  if (phase_ == Phase::failed && reader_) {
    if (const auto state = reader_->state()) dropped_events_ = state->dropped_events;
  }
  return dropped_events_;
}

void ProcessLog::stop_writing() {
  stopped_ = true;
  if (converter_) converter_->stop_writing();
}

uint64_t ProcessLog::overwritten_between() const {
  if (!reader_) return overwritten_between_;
  const auto& gaps = reader_->gaps();
  const bool at_first = !gaps.empty() && gaps.front().after_seq == 0;
  return reader_->overwritten_events() - (at_first ? gaps.front().events : 0);
}

// First the file, then the slots: a collector that dies between the two loses nothing.
Status ProcessLog::publish() {
  if (Status status = flush(); !status) return status;
  flushed_position_ = reader_->position();
  return reader_->publish();
}

Status ProcessLog::flush() {
  if (phase_ != Phase::draining) return Done{};
  writer_->set_log_position(reader_->position());
  return writer_->flush();
}

Status ProcessLog::end() {
  if (!noted_exit_ && watch_) noted_exit_ = watch_->exit();
  exit_ = noted_exit_.value_or(trace::ProcessExit{trace::ExitKind::vanished, 0});
  watch_.reset();
  if (Status status = converter_->seal(*reader_, exit_); !status) return fail(status.error());
  const auto state = reader_->state();
  if (state) dropped_events_ = state->dropped_events;
  discard(Phase::sealed);
  return Done{};
}

Status ProcessLog::fail(const Error& error) {
  phase_ = Phase::failed;
  obstacle_ = Error{error.code, error.text + "; what is not in the trace is kept in " + log_path_,
                    error.offset};
  return *obstacle_;
}

void ProcessLog::discard(Phase phase) {
  phase_ = phase;
  torn_records_ = torn_records();
  overwritten_between_ = overwritten_between();
  overwritten_events_ = overwritten_events();
  trace_bytes_ = trace_bytes();
  unwritten_events_ = unwritten_events();
  events_ = reader_ ? reader_->events() : 0;
  converter_.reset();
  writer_.reset();
  file_.reset();
  reader_.reset();
  ::unlink(log_path_.c_str());
}

trace::RunProcess ProcessLog::run_process() const {
  trace::RunProcess process;
  process.pid = pid_;
  process.start_ticks = start_ticks_;
  process.trace_file = std::filesystem::path(trace_path_).filename().string();
  process.exit = exit_;
  return process;
}

}  // namespace fragscope::capture
