// RunningStats against PyTorch's own way of counting: every quantity a Stat that rises and falls.
#include "model/running_stats.h"

#include <vector>

#include "model/version_profile.h"
#include "tests/support/catch.h"
#include "tests/support/random_commands.h"

using namespace fragscope::model;

namespace {

using Values = std::vector<std::pair<std::string, int64_t>>;

Values values_of(const DeviceStats& stats) {
  Values values;
  visit_stats(stats, version_profiles().back(),
              [&](const std::string& key, int64_t value) { values.emplace_back(key, value); });
  return values;
}

struct Used {
  PoolKind kind;
  uint64_t size;
  uint64_t requested;
};

// Both books, kept the same.
class Books {
 public:
  explicit Books(uint64_t seed) : random_(seed) {}

  void step() {
    const auto kind = static_cast<PoolKind>(random_.below(2));
    switch (random_.below(11)) {
      case 0:
      case 1:
      case 2:
        return begin(kind);
      case 3:
        return end();
      case 4:
        return wait();
      case 5:
        return end_wait();
      case 6:
      case 7:
        return begin_split(kind);
      case 8:
        return change_splits(kind);
      case 9:
        return lessen_splits(kind);
      default:
        return reset();
    }
  }

  bool same() {
    DeviceStats told;
    running_.tell(told);
    return values_of(told) == values_of(plain_) &&
           static_cast<int64_t>(running_.allocated_bytes()) == plain_.allocated_bytes.all.current;
  }

 private:
  void begin(PoolKind kind) {
    const uint64_t size = 512 * (1 + random_.below(1000));
    const Used used{kind, size, 1 + random_.below(size)};
    live_.push_back(used);
    running_.begin_block(kind, used.size, used.requested);
    plain_.allocation.rise(kind, 1);
    plain_.active.rise(kind, 1);
    plain_.allocated_bytes.rise(kind, used.size);
    plain_.active_bytes.rise(kind, used.size);
    plain_.requested_bytes.rise(kind, used.requested);
  }
  Used take(std::vector<Used>& from) {
    std::swap(from[random_.below(from.size())], from.back());
    const Used used = from.back();
    from.pop_back();
    return used;
  }
  void plain_free(const Used& used) {
    plain_.allocation.fall(used.kind, 1);
    plain_.allocated_bytes.fall(used.kind, used.size);
  }
  void plain_complete(const Used& used) {
    plain_.active.fall(used.kind, 1);
    plain_.active_bytes.fall(used.kind, used.size);
    plain_.requested_bytes.fall(used.kind, used.requested);
  }
  void end() {
    if (live_.empty()) return;
    const Used used = take(live_);
    running_.end_block(used.kind, used.size, used.requested);
    plain_free(used);
    plain_complete(used);
  }
  void wait() {
    if (live_.empty()) return;
    const Used used = take(live_);
    waiting_.push_back(used);
    running_.begin_wait(used.kind, used.size);
    plain_free(used);
  }
  void end_wait() {
    if (waiting_.empty()) return;
    const Used used = take(waiting_);
    running_.end_wait(used.kind, used.size, used.requested);
    plain_complete(used);
  }
  void begin_split(PoolKind kind) {
    const uint64_t bytes = 512 * random_.below(1000);
    running_.begin_split(kind, bytes);
    plain_.inactive_split.rise(kind, 1);
    plain_.inactive_split_bytes.rise(kind, bytes);
  }
  void change_splits(PoolKind kind) {
    const int64_t bytes = 512 * (static_cast<int64_t>(random_.below(1001)) - 500);
    const int64_t count = static_cast<int64_t>(random_.below(4)) - 2;
    running_.change_splits(kind, bytes, count);
    const auto change = [kind](PoolStat& stat, int64_t amount) {
      if (amount < 0) return stat.fall(kind, static_cast<uint64_t>(-amount));
      stat.rise(kind, static_cast<uint64_t>(amount));
    };
    change(plain_.inactive_split, count);
    change(plain_.inactive_split_bytes, bytes);
  }
  void lessen_splits(PoolKind kind) {
    const uint64_t bytes = 512 * random_.below(1000);
    const uint64_t count = random_.below(2);
    running_.lessen_splits(kind, bytes, static_cast<int64_t>(count));
    plain_.inactive_split.fall(kind, count);
    plain_.inactive_split_bytes.fall(kind, bytes);
  }
  void reset() {
    if (random_.below(2) == 0) {
      running_.reset_peaks();
      plain_.reset_peaks();
    } else {
      running_.reset_accumulated();
      plain_.reset_accumulated();
    }
  }

  fragscope::test::Random random_;
  RunningStats running_;
  DeviceStats plain_;
  std::vector<Used> live_;
  std::vector<Used> waiting_;
};

}  // namespace

TEST_CASE("running statistics tell what plain counting tells, at any moment") {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Books books(seed);
    CHECK(books.same());
    for (int step = 0; step < 600; ++step) {
      books.step();
      if (seed % 2 == 0 || step % 50 == 49) REQUIRE(books.same());  // asked always, or rarely
    }
  }
}

TEST_CASE("between two resets a peak is the highest level, also of what waits") {
  const auto large = PoolKind::kLarge;
  RunningStats running;
  running.begin_block(large, 1024, 1000);
  running.begin_block(large, 512, 500);
  running.begin_wait(large, 1024);
  running.begin_block(large, 2048, 2000);
  running.end_wait(large, 1024, 1000);
  DeviceStats stats;
  running.tell(stats);
  CHECK(stats.allocated_bytes.all.peak == 2560);
  CHECK(stats.active_bytes.all.peak == 3584);
  running.reset_peaks();
  running.tell(stats);
  CHECK(stats.active_bytes.all.peak == 2560);
  CHECK(stats.active_bytes.kind[1].peak == 2560);
}
