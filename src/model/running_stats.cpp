#include "model/running_stats.h"

#include <algorithm>

namespace fragscope::model {

// Between two changes of what waits, active and allocated have their peaks at the same moment.
void RunningBlocks::settle() {
  allocated_peak = std::max(allocated_peak, allocated.high);
  active_peak = std::max(active_peak, allocated.high + waiting);
}

void RunningBlocks::begin_wait(int64_t amount) {
  settle();
  allocated.fall(amount);
  waiting += amount;
  allocated.reset_peak();
}

void RunningBlocks::end_wait(int64_t amount) {
  settle();
  waiting -= amount;
  allocated.reset_peak();
}

Stat RunningBlocks::allocated_stat() const {
  Stat stat = allocated.stat();
  stat.peak = std::max(stat.peak, allocated_peak);
  return stat;
}

Stat RunningBlocks::active_stat() const {
  Running active = allocated;
  active.high = std::max(allocated.high + waiting, active_peak);
  active.room = active.high - (allocated.now() + waiting);
  active.at_reset += waiting_at_reset;
  return active.stat();
}

void RunningBlocks::reset_peak() {
  allocated.reset_peak();
  allocated_peak = active_peak = 0;
}

void RunningBlocks::reset_accumulated() {
  allocated.reset_accumulated();
  waiting_at_reset = waiting;
}

void RunningStats::begin_wait(PoolKind kind, uint64_t size) {
  for (Part* part : {&part_of(kind), &all_}) {
    part->count.begin_wait(1);
    part->bytes.begin_wait(static_cast<int64_t>(size));
  }
}

void RunningStats::end_wait(PoolKind kind, uint64_t size, uint64_t requested) {
  for (Part* part : {&part_of(kind), &all_}) {
    part->count.end_wait(1);
    part->bytes.end_wait(static_cast<int64_t>(size));
    part->requested_bytes.fall(static_cast<int64_t>(requested));
  }
}

void RunningStats::tell(DeviceStats& stats) const {
  const auto told = [this](auto&& stat_of) {
    PoolStat stat{stat_of(all_), {stat_of(kinds_[0]), stat_of(kinds_[1])}};
    stat.all.allocated = stat.kind[0].allocated + stat.kind[1].allocated;
    stat.all.freed = stat.kind[0].freed + stat.kind[1].freed;
    return stat;
  };
  stats.allocation = told([](const Part& part) { return part.count.allocated_stat(); });
  stats.active = told([](const Part& part) { return part.count.active_stat(); });
  stats.allocated_bytes = told([](const Part& part) { return part.bytes.allocated_stat(); });
  stats.active_bytes = told([](const Part& part) { return part.bytes.active_stat(); });
  stats.requested_bytes = told([](const Part& part) { return part.requested_bytes.stat(); });
  stats.inactive_split = told([](const Part& part) { return part.splits.stat(); });
  stats.inactive_split_bytes = told([](const Part& part) { return part.split_bytes.stat(); });
}

template <typename Call>
void RunningStats::for_each(Call&& call) {
  for (Part* part : {&kinds_[0], &kinds_[1], &all_}) {
    call(part->count);
    call(part->bytes);
    call(part->requested_bytes);
    call(part->splits);
    call(part->split_bytes);
  }
}

void RunningStats::reset_peaks() {
  for_each([](auto& stat) { stat.reset_peak(); });
}

void RunningStats::reset_accumulated() {
  for_each([](auto& stat) { stat.reset_accumulated(); });
}

}  // namespace fragscope::model
