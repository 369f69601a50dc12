// fragscope events: every event of a run, merged by (time, pid, seq).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>

#include "replay/event_stream.h"
#include "tools/command.h"
#include "tools/event_json.h"
#include "tools/open_run.h"
#include "tools/progress.h"
#include "tools/symbol_options.h"
#include "trace/text_events.h"

namespace fragscope::tools {
namespace {

constexpr size_t kFlushBytes = 1 << 16;

struct EventsOptions {
  std::string path;
  bool jsonl = false;
  bool stacks = false;
  symbolize::Places places;
};

bool flush(std::string& buffer) {
  const bool written = std::fwrite(buffer.data(), 1, buffer.size(), stdout) == buffer.size();
  buffer.clear();
  return written;
}

uint64_t total_events(const OpenRun& run) {
  uint64_t total = 0;
  for (const auto& reader : run.processes) total += reader.process().event_count;
  return total;
}

void append_frames(const Event& event, const trace::TraceTables& tables, StackNames& names,
                   std::string& out) {
  const auto* frames = names.frames_of(event, tables);
  if (frames == nullptr) return;
  for (const symbolize::Frame& frame : *frames) {
    out += "    " + one_line(symbolize::frame_text(frame)) + '\n';
  }
}

// Number of events printed; nullopt: standard output refused.
std::optional<uint64_t> print_events(OpenRun& run, const EventsOptions& options) {
  std::vector<replay::TraceStream> streams;
  streams.reserve(run.processes.size());
  std::vector<replay::EventStream*> sources;
  for (trace::TraceReader& reader : run.processes) {
    sources.push_back(&streams.emplace_back(reader));
  }
  replay::MergedStream merged(sources);
  StackNames names(options.places);
  EventJson json(options.stacks ? &names : nullptr);
  Progress progress("events", total_events(run));
  std::string buffer;
  uint64_t count = 0;
  for (Event event; merged.next(event); ++count) {
    const trace::TraceTables& tables = run.processes[merged.source()].tables();
    if (options.jsonl) {
      json.append(event, tables, buffer);
    } else {
      buffer += fmt::format("pid={} {}\n", event.pid, trace::format_event(event, tables));
      if (options.stacks) append_frames(event, tables, names, buffer);
    }
    if (buffer.size() > kFlushBytes && !flush(buffer)) return std::nullopt;
    progress.advance(count);
  }
  for (const std::string& warning : names.warnings()) warn(warning);
  return flush(buffer) ? std::optional(count) : std::nullopt;
}

int events(const EventsOptions& options) {
  if (const std::string problem = problem_of(options.places); !problem.empty()) {
    return fail(problem, kExitUsage);
  }
  auto run = open_run(options.path);
  if (!run.ok()) return fail(run.error());
  const auto count = print_events(*run, options);
  if (!count) {
    return fail(fmt::format("cannot write to standard output: {}", std::strerror(errno)),
                kExitOutput);
  }
  const int code = reading_exit_code(*run, *count);
  if (code != kExitNothingRecorded) return code;
  return fail(fmt::format("{}: no events were recorded", options.path), kExitNothingRecorded);
}

}  // namespace

void add_events_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("events", "Print every event of a run");
  const auto options = std::make_shared<EventsOptions>();
  command
      ->add_option("RUN", options->path,
                   "Run directory, trace file, text trace or PyTorch snapshot")
      ->required();
  command->add_flag("--jsonl", options->jsonl, "One JSON object per line");
  command->add_flag("--stacks", options->stacks, "Name the frames of each event's call stack");
  add_symbol_options(*command, options->places);
  command->callback([options, &context] { context.exit_code = events(*options); });
}

}  // namespace fragscope::tools
