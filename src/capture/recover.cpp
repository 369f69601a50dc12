#include "capture/recover.h"

#include <filesystem>
#include <memory>
#include <optional>

#include "capture/log_to_trace.h"
#include "trace/byte_source.h"
#include "trace/trace_reader.h"

namespace fragscope::capture {
namespace {

namespace fs = std::filesystem;
using log::LogReader;
using trace::ExitKind;
using Bytes = std::vector<std::byte>;

// A collector at work may give slots back while they are read here; then the trace has them.
constexpr int kAttempts = 5;

Result<Bytes> finish_from_log(LogReader& reader, LogToTrace& converter,
                              const trace::MemorySink& sink, bool alive) {
  // What is written while this reads is left alone: a busy process would keep it here for ever.
  const auto there = reader.remaining();
  if (!there) return there.error();
  auto passed = reader.read(converter, alive, alive ? *there : UINT64_MAX);
  if (!passed) return passed.error();
  const ExitKind kind = alive ? ExitKind::running : ExitKind::vanished;
  if (Status status = converter.seal(reader, {kind, 0}); !status) return status.error();
  return sink.bytes();
}

// Build-ids of files that were replaced since would name the wrong symbols.
uint64_t files_unchanged_since(const trace::ProcessInfo& process, bool alive) {
  return alive ? UINT64_MAX : process.realtime_ns;
}

// As the collector does: a process of a container calls itself otherwise than it is called here.
Status note_host_pid(trace::TraceWriter& writer, const trace::ProcessInfo& process) {
  const auto here = pid_here(process.pid, process.start_ticks);
  if (!here || *here == process.pid) return Done{};
  return writer.add_property("host_pid", std::to_string(*here));
}

Result<Bytes> convert_all(LogReader& reader, std::optional<bool> process_alive) {
  const auto process = process_of(reader);
  if (!process) return process.error();
  const bool alive =
      process_alive ? *process_alive : process_is_alive(process->pid, process->start_ticks);
  trace::MemorySink sink;
  auto writer = trace::TraceWriter::start(sink, *process);
  if (!writer) return writer.error();
  if (Status noted = note_host_pid(*writer, *process); !noted) return noted.error();
  LogToTrace converter(reader, *writer, files_unchanged_since(*process, alive));
  return finish_from_log(reader, converter, sink, alive);
}

Result<Bytes> convert_once(const std::string& path, std::optional<bool> process_alive) {
  auto reader = LogReader::open(path, LogReader::Access::inspect);
  if (!reader) return reader.error();
  return convert_all(*reader, process_alive);
}

// Without a whole header there is no trace: the disk was full before it, or damage took it.
bool has_no_header(const Error& error) {
  return error.code == ErrorCode::kForeign || error.code == ErrorCode::kDamaged;
}

template <typename Attempt>
Result<Bytes> repeat_while_drained(Attempt&& attempt) {
  Result<Bytes> result = attempt();
  for (int i = 1; i < kAttempts; ++i) {
    if (result.ok() || result.error().code != ErrorCode::kUnsupported) break;
    result = attempt();
  }
  return result;
}

// Everything that events refer to.
Status copy_tables(const trace::TraceTables& tables, trace::TraceWriter& writer) {
  Status status = Done{};
  for (const auto& [id, frame] : tables.python_frames) {
    if (status) status = writer.add_python_frame(id, frame);
  }
  for (const auto& [id, frames] : tables.stacks) {
    if (status) status = writer.add_stack(id, frames);
  }
  for (const auto& [id, text] : tables.texts) {
    if (status) status = writer.add_text(id, text);
  }
  for (const auto& [id, name] : tables.api_names) {
    if (status) status = writer.add_api_name(id, name);
  }
  for (const trace::Module& module : tables.modules) {
    if (status) status = writer.add_module(module);
  }
  return status;
}

// All of an unsealed trace into `writer`; where its log goes on.
struct Copied {
  uint64_t last_seq = 0;
  uint64_t last_time_ns = 0;
};
Result<Copied> copy_trace(trace::TraceReader& from, trace::TraceWriter& writer) {
  from.load_tables();
  Status status = copy_tables(from.tables(), writer);
  for (const auto& [key, value] : from.process().properties) {
    if (status) status = writer.add_property(key, value);
  }
  Copied copied;
  for (auto batch = from.next_batch(); !batch.empty(); batch = from.next_batch()) {
    for (const Event& event : batch) {
      if (status) status = writer.add_event(event);
    }
    copied = {batch.back().seq, batch.back().time_ns};
  }
  if (!status) return status.error();
  return copied;
}

Result<Bytes> whole_file(const std::string& path) {
  auto source = trace::ByteSource::open_file(path);
  if (!source) return source.error();
  const auto bytes = source->read(0, source->size());
  return Bytes(bytes.begin(), bytes.end());
}

Result<Bytes> recover_once(const std::string& trace_path, const std::string& log_path) {
  auto log = LogReader::open(log_path, LogReader::Access::inspect);
  if (!log) return log.error();
  auto from = trace::TraceReader::open_file(trace_path);
  if (!from && has_no_header(from.error())) {
    log->resume(0, 0, 0);  // counts what was drained and is in no trace
    return convert_all(*log, std::nullopt);
  }
  if (!from) return from.error();
  if (from->process().sealed) return whole_file(trace_path);
  const auto process = process_of(*log);
  if (!process) return process.error();
  if (process->pid != from->process().pid || process->start_ticks != from->process().start_ticks) {
    return Error{ErrorCode::kDamaged, log_path + ": is not the log of " + trace_path};
  }
  trace::MemorySink sink;
  auto writer = trace::TraceWriter::start(sink, *process);
  if (!writer) return writer.error();
  if (Status noted = note_host_pid(*writer, *process); !noted) return noted.error();
  const auto copied = copy_trace(*from, *writer);
  if (!copied) return copied.error();
  log->resume(from->process().log_position, copied->last_seq, copied->last_time_ns);
  const bool alive = process_is_alive(process->pid, process->start_ticks);
  LogToTrace converter(*log, *writer, files_unchanged_since(*process, alive));
  converter.know_api_names(from->tables().api_names);
  return finish_from_log(*log, converter, sink, alive);
}

}  // namespace

Result<Bytes> convert_log(const std::string& log_path, bool process_alive) {
  return repeat_while_drained([&] { return convert_once(log_path, process_alive); });
}

Result<Bytes> convert_log(const std::string& log_path) {
  return repeat_while_drained([&] { return convert_once(log_path, std::nullopt); });
}

Result<Bytes> recover_process(const std::string& trace_path, const std::string& log_path) {
  return repeat_while_drained([&] { return recover_once(trace_path, log_path); });
}

std::string find_log(const std::string& trace_path, const std::vector<std::string>& directories) {
  const std::string name = fs::path(trace_path).stem().string() + ".fslog";
  for (const std::string& directory : directories) {
    std::error_code error;
    const fs::path candidate = fs::path(directory) / name;
    if (!directory.empty() && fs::is_regular_file(fs::symlink_status(candidate, error))) {
      return candidate.string();
    }
  }
  return {};
}

}  // namespace fragscope::capture
