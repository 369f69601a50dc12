// A run as the commands `report` and `replay` look at it: what is known of the run, and of each
// process beside its events.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "metrics/process_metrics.h"
#include "replay/event_stream.h"
#include "replay/process_facts.h"
#include "replay/sized_stream.h"
#include "report/report_data.h"
#include "report/text_report.h"
#include "tools/open_run.h"

namespace fragscope::tools {

report::RunData run_data(const OpenRun& run);

// For each device of a simulated run with convolutions: where the peak of reserved bytes lies
// whatever workspaces cuDNN takes.
void set_reserved_ranges(const report::RunData& run, report::ProcessData& process);

// How the process ended: the trace's word, else run.json's; one of which both only know that it ran
// and that is gone has vanished.
trace::ProcessExit exit_of(const OpenRun& run, const trace::ProcessInfo& process);

// The trace's facts, completed by run.json: how the process ended, and what `fragscope run` knew of
// its torch and its settings.
// A snapshot's release is looked for, which reads its events.
replay::ProcessFacts process_facts(const OpenRun& run, trace::TraceReader& reader);

// The events of a process, with sizes of blocks where its source tells none. Both arguments outlive
// it.
class ProcessEvents {
 public:
  ProcessEvents(trace::TraceReader& reader, const replay::ProcessFacts& facts) : plain_(reader) {
    if (facts.block_source == replay::BlockSource::snapshot) sized_.emplace(plain_, facts);
  }
  replay::EventStream& stream() {
    if (sized_) return *sized_;
    return plain_;
  }

 private:
  replay::TraceStream plain_;
  std::optional<replay::SizedStream> sized_;
};

// A process of a run, measured. `events` lives as long as the call that it is handed to.
struct MeasuredProcess {
  trace::TraceReader& reader;
  const replay::ProcessFacts& facts;
  replay::EventStream& events;  // at its end: rewind() before reading on
  metrics::ProcessMetrics measured;
};

// Opens nothing, prints nothing: reads each process of `run` once and hands it over, in order.
void measure_run(OpenRun& run, const std::function<void(MeasuredProcess&&)>& take);

// Why figures of the process may be too low, a line each: damage, losses. After it was read.
std::vector<std::string> gaps_of(const trace::TraceReader& reader);

// After its events were read: what damage left of them.
std::optional<report::DamageData> damage_of(const trace::TraceReader& reader, uint64_t events_read);

// For standard output: colours and width only on a terminal.
report::TextStyle output_style();

// "4711", or "(pid unknown)" for 0: a snapshot names no process.
std::string pid_text(uint32_t pid);

// Writes all of `text` to standard output; the command's exit code.
int print_output(const std::string& text);

}  // namespace fragscope::tools
