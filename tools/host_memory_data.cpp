#include "tools/host_memory_data.h"

#include <algorithm>
#include <charconv>

namespace fragscope::tools {
namespace {

report::HostUseData use_data(const trace::HostUse& use) { return {use.rss, use.pss, use.shm}; }

report::HostMomentData moment_data(const trace::HostSample& sample) {
  report::HostMomentData data;
  data.time_ns = sample.time_ns;
  data.looks = sample.looks;
  data.processes = sample.processes;
  data.tree = use_data(sample.tree);
  data.shm_unlinked = sample.shm_unlinked;
  data.shm_used = sample.shm_used;
  data.shm_total = sample.shm_total;
  data.recorder_shm = sample.recorder;
  data.available = sample.available;
  data.cgroup_used = sample.cgroup_used;
  data.cgroup_limit = sample.cgroup_limit;
  for (const auto& [process, use] : sample.by_process) data.by_process[process] = use_data(use);
  return data;
}

bool is_recorded(const OpenRun& run, const trace::HostProcess& process) {
  return std::any_of(run.processes.begin(), run.processes.end(),
                     [&](const trace::TraceReader& reader) {
                       return pid_on_host(reader.process()) == process.pid &&
                              reader.process().start_ticks == process.start_ticks;
                     });
}

}  // namespace

uint32_t pid_on_host(const trace::ProcessInfo& process) {
  const auto here = process.properties.find("host_pid");
  uint32_t pid = process.pid;
  if (here != process.properties.end()) {
    std::from_chars(here->second.data(), here->second.data() + here->second.size(), pid);
  }
  return pid;
}

std::optional<report::HostMemoryData> host_memory_data(const OpenRun& run) {
  if (!run.host) return std::nullopt;
  report::HostMemoryData data;
  data.interval_ns = run.host->interval_ns;
  for (const trace::HostProcess& process : run.host->processes) {
    data.processes.push_back({process.pid,
                              process.start_ticks,
                              process.parent,
                              process.name,
                              is_recorded(run, process),
                              0,
                              0,
                              {}});
  }
  for (const trace::HostSample& sample : run.host->samples) {
    data.series.push_back(moment_data(sample));
    for (const auto& [index, use] : sample.by_process) {
      report::HostProcessData& process = data.processes[index];
      if (process.first_ns == 0) process.first_ns = sample.time_ns;
      process.last_ns = sample.time_ns;
    }
  }
  const trace::HostSample peak = trace::peak_of(run.host->samples);
  data.peak = moment_data(peak);
  for (const auto& [index, use] : peak.by_process) data.processes[index].peak = use_data(use);
  return data;
}

}  // namespace fragscope::tools
