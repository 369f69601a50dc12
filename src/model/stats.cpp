#include "model/stats.h"

#include <algorithm>
#include <utility>

#include "model/version_profile.h"

namespace fragscope::model {
namespace {

using Visit = std::function<void(const std::string&, int64_t)>;
using Rows = std::vector<std::pair<std::string, int64_t>>;

void add_stat(Rows& rows, const std::string& name, const Stat& stat) {
  rows.emplace_back(name + ".allocated", stat.allocated);
  rows.emplace_back(name + ".current", stat.current);
  rows.emplace_back(name + ".freed", stat.freed);
  rows.emplace_back(name + ".peak", stat.peak);
}

void add_pool_stat(Rows& rows, const std::string& name, const PoolStat& stat) {
  add_stat(rows, name + ".all", stat.all);
  add_stat(rows, name + ".small_pool", stat.kind[static_cast<size_t>(PoolKind::kSmall)]);
  add_stat(rows, name + ".large_pool", stat.kind[static_cast<size_t>(PoolKind::kLarge)]);
}

// The nine quantities that are kept per kind of pool, with their names.
template <typename Call>
void for_each_pool_stat(DeviceStats& stats, Call&& call) {
  call("allocation", stats.allocation);
  call("segment", stats.segment);
  call("active", stats.active);
  call("inactive_split", stats.inactive_split);
  call("allocated_bytes", stats.allocated_bytes);
  call("reserved_bytes", stats.reserved_bytes);
  call("active_bytes", stats.active_bytes);
  call("inactive_split_bytes", stats.inactive_split_bytes);
  call("requested_bytes", stats.requested_bytes);
}

template <typename Call>
void for_each_stat(DeviceStats& stats, Call&& call) {
  const auto each = [&](const char*, PoolStat& stat) {
    call(stat.all);
    for (Stat& kind : stat.kind) call(kind);
  };
  for_each_pool_stat(stats, each);
  for (PrivatePoolBytes& pool : stats.private_pools) each("", pool.reserved_bytes);
  call(stats.oversize_allocations);
  call(stats.oversize_segments);
}

}  // namespace

void DeviceStats::reset_peaks() {
  for_each_stat(*this, [](Stat& stat) { stat.reset_peak(); });
}

void DeviceStats::reset_accumulated() {
  for_each_stat(*this, [](Stat& stat) { stat.reset_accumulated(); });
  num_alloc_retries = num_ooms = num_sync_all_streams = 0;
  num_device_alloc = num_device_free = num_oom_rejections = 0;
}

void visit_stats(const DeviceStats& stats, const VersionProfile& profile, const Visit& visit) {
  Rows rows;
  DeviceStats copy = stats;
  for_each_pool_stat(copy,
                     [&](const char* name, PoolStat& stat) { add_pool_stat(rows, name, stat); });
  add_stat(rows, "oversize_allocations", stats.oversize_allocations);
  add_stat(rows, "oversize_segments", stats.oversize_segments);
  rows.emplace_back("max_split_size", stats.max_split_size);
  rows.emplace_back("num_alloc_retries", stats.num_alloc_retries);
  rows.emplace_back("num_ooms", stats.num_ooms);
  if (profile.has_device_alloc_counters) {
    rows.emplace_back("num_sync_all_streams", stats.num_sync_all_streams);
    rows.emplace_back("num_device_alloc", stats.num_device_alloc);
    rows.emplace_back("num_device_free", stats.num_device_free);
  }
  if (profile.has_rejection_counter) {
    rows.emplace_back("num_oom_rejections", stats.num_oom_rejections);
  }
  if (profile.has_private_pool_bytes) {
    for (const PrivatePoolBytes& pool : stats.private_pools) {
      add_pool_stat(rows,
                    "reserved_bytes_by_private_pools." + std::to_string(pool.id.first) + "_" +
                        std::to_string(pool.id.second),
                    pool.reserved_bytes);
    }
  }
  std::sort(rows.begin(), rows.end());
  for (const auto& [name, value] : rows) visit(name, value);
}

}  // namespace fragscope::model
