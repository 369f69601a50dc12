#include "tools/data_loading_facts.h"

#include <algorithm>
#include <cctype>
#include <thread>

#include "diagnose/attribution.h"
#include "metrics/process_metrics.h"
#include "symbolize/symbolizer.h"
#include "tools/host_memory_data.h"
#include "tools/run_analysis.h"

namespace fragscope::tools {
namespace {

using diagnose::LoadingFacts;

constexpr double kNanoseconds = 1e9;

// Ranges that people put around getting a batch.
bool is_about_data(const std::string& text) {
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* word : {"data", "load", "batch", "__next__"}) {
    if (lower.find(word) != lower.npos) return true;
  }
  return false;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void take_steps(const diagnose::Attribution& data, LoadingFacts& facts) {
  const uint64_t inputs = data.roles[static_cast<size_t>(diagnose::TensorRole::inputs)].bytes;
  if (inputs > 0) facts.batch_bytes = inputs;
  std::vector<double> steps;
  for (size_t i = 1; i < data.step_times_ns.size(); ++i) {
    steps.push_back(static_cast<double>(data.step_times_ns[i] - data.step_times_ns[i - 1]) /
                    kNanoseconds);
  }
  if (!steps.empty()) facts.step_seconds = median(std::move(steps));
}

void take_trainer(const metrics::ProcessMetrics& measured, trace::TraceReader& reader,
                  replay::EventStream& events, LoadingFacts& facts) {
  facts.pinned_peak = measured.pinned_driver.peak;
  if (measured.torch_host) {
    facts.pinned_torch = measured.torch_host->held.peak();
    facts.pinned_padding = measured.torch_host->most_padding.peak();
  }
  for (const auto& [index, device] : measured.devices) {
    if (device.facts.total_bytes) facts.card_bytes = device.facts.total_bytes;
    facts.simulated |= device.facts.simulated.value_or(false);
  }
  for (const metrics::Phase& phase : measured.phases) {
    const auto text = reader.tables().texts.find(phase.text);
    if (text == reader.tables().texts.end() || !is_about_data(text->second)) continue;
    if (phase.count == 0) continue;
    facts.wait_seconds =
        static_cast<double>(phase.total_ns) / static_cast<double>(phase.count) / kNanoseconds;
  }
  symbolize::Symbolizer symbols(reader.tables());
  diagnose::StackRoles roles(&symbols);
  for (const auto& data : diagnose::attribute(events, measured, roles, reader.tables().texts)) {
    take_steps(data, facts);
  }
}

// Looks at the processes from which on "no worker" is an answer.
constexpr size_t kFewestLooks = 5;

// Children of the trainer that load data: those with batches in /dev/shm or the name that PyTorch
// gives its workers; if there are none, those that made no CUDA call.
std::vector<size_t> workers_of(const report::HostMemoryData& host, uint32_t trainer) {
  std::vector<size_t> named;
  std::vector<size_t> plain;
  for (size_t i = 0; i < host.processes.size(); ++i) {
    const report::HostProcessData& process = host.processes[i];
    if (process.parent_pid != trainer) continue;
    if (process.name.starts_with("pt_data_worker") || process.peak.shm.value_or(0) > 0) {
      named.push_back(i);
    } else if (!process.recorded) {
      plain.push_back(i);
    }
  }
  return named.empty() ? plain : named;
}

// Of the machine, or of a container's limit where that is less.
std::optional<uint64_t> least_room(const report::HostMemoryData& host) {
  std::optional<uint64_t> room = host.peak.available;
  for (const report::HostMomentData& moment : host.series) {
    if (!moment.cgroup_limit || !moment.cgroup_used) continue;
    const uint64_t left =
        *moment.cgroup_limit - std::min(*moment.cgroup_limit, *moment.cgroup_used);
    room = std::min(room.value_or(UINT64_MAX), left);
  }
  return room;
}

void take_host(const report::HostMemoryData& host, uint32_t trainer, LoadingFacts& facts) {
  const std::vector<size_t> workers = workers_of(host, trainer);
  facts.workers = 0;
  facts.workers_with_device = 0;
  uint64_t largest = 0;
  for (const size_t index : workers) {
    const report::HostProcessData& process = host.processes[index];
    *facts.workers_with_device += process.recorded ? 1 : 0;
    largest = std::max(largest, process.peak.pss.value_or(process.peak.rss));
  }
  for (const report::HostMomentData& moment : host.series) {
    const auto alive = std::count_if(workers.begin(), workers.end(), [&](size_t index) {
      return moment.by_process.count(static_cast<uint32_t>(index)) != 0;
    });
    facts.workers = std::max(*facts.workers, static_cast<uint64_t>(alive));
  }
  if (!workers.empty()) facts.worker_bytes = largest;
  // Workers that lived between two looks were never seen: a short run leaves their number open.
  if (workers.empty() && host.series.size() < kFewestLooks) {
    facts.workers.reset();
    facts.workers_with_device.reset();
    facts.looked_too_seldom = true;
  }
  facts.shm_peak = host.peak.tree.shm;
  facts.shm_total = host.peak.shm_total;
  facts.available_least = least_room(host);
}

}  // namespace

LoadingFacts data_loading_facts(OpenRun& run, uint64_t cores) {
  LoadingFacts facts;
  facts.cores = cores > 0 ? cores : std::thread::hardware_concurrency();
  uint64_t most = 0;
  uint32_t trainer = 0;
  for (trace::TraceReader& reader : run.processes) {
    reader.load_tables();
    const replay::ProcessFacts process = process_facts(run, reader);
    ProcessEvents events(reader, process);
    const metrics::ProcessMetrics measured = metrics::measure_process(events.stream(), process);
    uint64_t held = 0;
    for (const auto& [index, device] : measured.devices) {
      held += device.driver.peak.value_or(0);
      facts.device_refused |= !device.ooms.empty();
    }
    for (const metrics::FailedCall& failure : measured.failures) {
      facts.host_refused |= !failure.probe && failure.kind == EventKind::pinned_alloc;
    }
    if (trainer != 0 && held <= most) continue;
    most = held;
    trainer = pid_on_host(reader.process());
    take_trainer(measured, reader, events.stream(), facts);
  }
  if (const auto host = host_memory_data(run)) take_host(*host, trainer, facts);
  return facts;
}

}  // namespace fragscope::tools
