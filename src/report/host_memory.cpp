#include "report/host_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/text.h"

namespace fragscope::report {
namespace {

using Json = nlohmann::ordered_json;

Json known(const std::optional<uint64_t>& value) { return value ? Json(*value) : Json(nullptr); }

std::string bytes_text(const std::optional<uint64_t>& bytes) {
  return bytes ? format_size(*bytes) : std::string("unknown");
}

Json moment_json(const HostMomentData& moment) {
  return {{"t_ns", moment.time_ns},
          {"looks", moment.looks},
          {"processes", moment.processes},
          {"rss_bytes", moment.tree.rss},
          {"pss_bytes", known(moment.tree.pss)},
          {"shm_bytes", known(moment.tree.shm)},
          {"shm_unlinked_bytes", moment.shm_unlinked},
          {"shm_used_bytes", known(moment.shm_used)},
          {"recorder_shm_bytes", moment.recorder_shm},
          {"available_bytes", known(moment.available)},
          {"cgroup_used_bytes", known(moment.cgroup_used)},
          {"cgroup_limit_bytes", known(moment.cgroup_limit)}};
}

Json process_json(const HostProcessData& process) {
  return {{"pid", process.pid},
          {"start_ticks", process.start_ticks},
          {"parent_pid", process.parent_pid},
          {"name", process.name},
          {"recorded", process.recorded},
          {"first_t_ns", process.first_ns},
          {"last_t_ns", process.last_ns},
          {"peak_rss_bytes", process.peak.rss},
          {"peak_pss_bytes", known(process.peak.pss)},
          {"peak_shm_bytes", known(process.peak.shm)}};
}

std::string process_line(const HostProcessData& process) {
  std::string line =
      fmt::format("process {} {} (child of {}{}): {} resident", process.pid,
                  printable(process.name), process.parent_pid,
                  process.recorded ? "" : ", no CUDA memory calls", format_size(process.peak.rss));
  if (process.peak.pss) line += fmt::format(", {} its share", format_size(*process.peak.pss));
  if (process.peak.shm.value_or(0) > 0) {
    line += fmt::format(", maps {} of /dev/shm", format_size(*process.peak.shm));
  }
  return line;
}

}  // namespace

Json host_memory_json(const HostMemoryData& host) {
  Json processes = Json::array();
  for (const HostProcessData& process : host.processes) processes.push_back(process_json(process));
  Json series = Json::array();
  for (const HostMomentData& moment : host.series) {
    Json entry = moment_json(moment);
    Json rows = Json::array();
    for (const auto& [process, use] : moment.by_process) {
      rows.push_back(Json::array({process, use.rss, known(use.pss), known(use.shm)}));
    }
    entry["by_process"] = rows;
    series.push_back(std::move(entry));
  }
  return {{"interval_ns", host.interval_ns},
          {"shm_total_bytes", known(host.peak.shm_total)},
          {"peak", moment_json(host.peak)},
          {"processes", processes},
          {"series", series}};
}

std::vector<std::string> host_memory_lines(const HostMemoryData& host, size_t rows) {
  const HostMomentData& peak = host.peak;
  std::vector<std::string> lines;
  lines.push_back(fmt::format(
      "at most {} resident in {} process{} (shared pages once: {}); the machine had {} left",
      format_size(peak.tree.rss), peak.processes, peak.processes == 1 ? "" : "es",
      bytes_text(peak.tree.pss), bytes_text(peak.available)));
  if (peak.cgroup_limit) {
    lines.push_back(fmt::format("control group: at most {} of its limit of {} in use",
                                bytes_text(peak.cgroup_used), bytes_text(peak.cgroup_limit)));
  }
  if (peak.shm_used) {
    lines.push_back(
        fmt::format("/dev/shm: at most {} of this run ({} of it in files without a "
                    "name), {} of {} in use by all",
                    bytes_text(peak.tree.shm), format_size(peak.shm_unlinked),
                    format_size(*peak.shm_used), bytes_text(peak.shm_total)));
  }
  std::vector<const HostProcessData*> order;
  for (const HostProcessData& process : host.processes) order.push_back(&process);
  std::stable_sort(order.begin(), order.end(), [](const auto* left, const auto* right) {
    return left->peak.rss > right->peak.rss;
  });
  for (size_t i = 0; i < std::min(rows, order.size()); ++i)
    lines.push_back(process_line(*order[i]));
  if (order.size() > rows) lines.push_back(fmt::format("… {} more", order.size() - rows));
  return lines;
}

}  // namespace fragscope::report
