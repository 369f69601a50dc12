#include "model/host_stats.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "model/version_profile.h"

namespace fragscope::model {
namespace {

using Row = std::pair<std::string, std::optional<int64_t>>;

void add_stat(std::vector<Row>& rows, const std::string& name, const Stat& stat) {
  rows.emplace_back(name + ".allocated", stat.allocated);
  rows.emplace_back(name + ".current", stat.current);
  rows.emplace_back(name + ".freed", stat.freed);
  rows.emplace_back(name + ".peak", stat.peak);
}

void add_time(std::vector<Row>& rows, const std::string& name, int64_t count) {
  rows.emplace_back(name + ".count", count);
  for (const char* unknown : {".avg", ".max", ".min", ".total"}) {
    rows.emplace_back(name + unknown, std::nullopt);
  }
}

}  // namespace

void visit_host_stats(
    const HostStats& stats, const VersionProfile& profile,
    const std::function<void(const std::string&, std::optional<int64_t>)>& visit) {
  if (profile.host_stats == HostStatsForm::kNone) return;
  const bool segments = profile.host_stats == HostStatsForm::kSegments;
  std::vector<Row> rows;
  add_stat(rows, segments ? "segment" : "allocations", stats.allocations);
  add_stat(rows, segments ? "reserved_bytes" : "allocated_bytes", stats.allocated_bytes);
  add_stat(rows, segments ? "allocation" : "active_requests", stats.active_requests);
  add_stat(rows, segments ? "allocated_bytes" : "active_bytes", stats.active_bytes);
  rows.emplace_back("num_host_alloc", stats.num_host_alloc);
  rows.emplace_back("num_host_free", stats.num_host_free);
  add_time(rows, "host_alloc_time", stats.timed_allocs);
  add_time(rows, "host_free_time", stats.timed_frees);
  std::sort(rows.begin(), rows.end());
  for (const auto& [name, value] : rows) visit(name, value);
}

}  // namespace fragscope::model
