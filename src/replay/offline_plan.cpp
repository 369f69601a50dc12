#include "replay/offline_plan.h"

#include <algorithm>
#include <numeric>

#include "replay/occupied_ranges.h"

namespace fragscope::replay {
namespace {

constexpr double kGoodEnough = 1.002;  // of the live peak: no further order is tried
constexpr int kRepairs = 6;

using Order = std::vector<uint32_t>;

uint64_t live_peak(std::span<const PlannedBlock> blocks, uint32_t end) {
  std::vector<int64_t> change(end + 1);
  for (const PlannedBlock& block : blocks) {
    change[block.birth] += static_cast<int64_t>(block.size);
    change[block.death] -= static_cast<int64_t>(block.size);
  }
  int64_t now = 0;
  int64_t peak = 0;
  for (const int64_t step : change) peak = std::max(peak, now += step);
  return static_cast<uint64_t>(peak);
}

class Planner {
 public:
  explicit Planner(std::span<const PlannedBlock> blocks) : blocks_(blocks) {
    for (const PlannedBlock& block : blocks) end_ = std::max(end_, block.death);
    best_.live_peak = live_peak(blocks, end_);
  }

  OfflinePlan run() {
    if (blocks_.empty()) return best_;
    const auto life = [](const PlannedBlock& block) {
      return static_cast<double>(block.death - block.birth);
    };
    const auto size = [](const PlannedBlock& block) { return static_cast<double>(block.size); };
    try_order(life);
    if (!good()) try_order([&](const PlannedBlock& block) { return life(block) * size(block); });
    if (!good()) try_order(size);
    for (int round = 0; round < kRepairs && !good(); ++round) repair();
    return std::move(best_);
  }

 private:
  bool good() const {
    return static_cast<double>(best_.height) <= kGoodEnough * static_cast<double>(best_.live_peak);
  }

  template <typename Key>
  void try_order(Key key) {
    Order order(blocks_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      const double left = key(blocks_[a]);
      const double right = key(blocks_[b]);
      if (left != right) return left > right;
      if (blocks_[a].size != blocks_[b].size) return blocks_[a].size > blocks_[b].size;
      return a < b;
    });
    place(order);
  }

  // Those that reached above the live peak go first next time.
  void repair() {
    Order order = best_order_;
    std::stable_partition(order.begin(), order.end(), [&](uint32_t block) {
      return last_[block] + blocks_[block].size > best_.live_peak;
    });
    place(order);
    best_order_ = order;
  }

  void place(const Order& order) {
    OccupiedRanges occupied(end_);
    last_.resize(blocks_.size());
    uint64_t height = 0;
    for (const uint32_t index : order) {
      const PlannedBlock& block = blocks_[index];
      last_[index] = occupied.place(block.birth, block.death, block.size);
      height = std::max(height, last_[index] + block.size);
    }
    if (!best_.offsets.empty() && height >= best_.height) return;
    best_.height = height;
    best_.offsets = last_;
    best_order_ = order;
  }

  std::span<const PlannedBlock> blocks_;
  uint32_t end_ = 0;
  OfflinePlan best_;
  Order best_order_;
  std::vector<uint64_t> last_;  // offsets of the last attempt
};

}  // namespace

OfflinePlan plan_offline(std::span<const PlannedBlock> blocks) { return Planner(blocks).run(); }

}  // namespace fragscope::replay
