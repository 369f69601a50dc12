#include "replay/offline_plan.h"

#include <algorithm>
#include <numeric>

#include "replay/occupied_ranges.h"

namespace fragscope::replay {
namespace {

constexpr double kGoodEnough = 1.002;  // of the live peak: no further order is tried
constexpr int kRepairs = 8;
// A plan of many blocks takes a second per attempt: so near to the live peak one attempt in vain is
// the last.
constexpr double kNearEnough = 1.01;
constexpr size_t kManyBlocks = 50'000;

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

uint32_t end_of(std::span<const PlannedBlock> blocks) {
  uint32_t end = 0;
  for (const PlannedBlock& block : blocks) end = std::max(end, block.death);
  return end;
}

class Planner {
 public:
  explicit Planner(std::span<const PlannedBlock> blocks)
      : blocks_(blocks), occupied_(end_of(blocks)) {
    best_.live_peak = live_peak(blocks, end_of(blocks));
  }

  OfflinePlan run() {
    if (blocks_.empty()) return best_;
    const auto life = [](const PlannedBlock& block) {
      return static_cast<double>(block.death - block.birth);
    };
    const auto size = [](const PlannedBlock& block) { return static_cast<double>(block.size); };
    try_order(life);
    if (!good()) try_order(size);
    if (!good()) try_order([&](const PlannedBlock& block) { return life(block) * size(block); });
    repairs();
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
    place(order, best_.offsets.empty() ? UINT64_MAX : best_.height);
  }

  // Those that reached above the live peak go first next time.
  void repairs() {
    Order order = best_order_;
    last_ = best_.offsets;
    for (int round = 0; round < kRepairs && !good(); ++round) {
      Order next = order;
      std::stable_partition(next.begin(), next.end(), [&](uint32_t block) {
        return last_[block] + blocks_[block].size > best_.live_peak;
      });
      if (next == order) return;  // the same order gives the same plan once more
      order = std::move(next);
      const uint64_t before = best_.height;
      place(order, UINT64_MAX);
      const bool near =
          static_cast<double>(before) <= kNearEnough * static_cast<double>(best_.live_peak);
      if (best_.height == before && near && blocks_.size() >= kManyBlocks) return;
    }
  }

  // Gives up where the plan reaches `limit`.
  void place(const Order& order, uint64_t limit) {
    occupied_.clear();
    last_.resize(blocks_.size());
    uint64_t height = 0;
    for (const uint32_t index : order) {
      const PlannedBlock& block = blocks_[index];
      last_[index] = occupied_.place(block.birth, block.death, block.size);
      height = std::max(height, last_[index] + block.size);
      if (height >= limit) return;
    }
    if (!best_.offsets.empty() && height >= best_.height) return;
    best_.height = height;
    best_.offsets = last_;
    best_order_ = order;
  }

  std::span<const PlannedBlock> blocks_;
  OfflinePlan best_;
  Order best_order_;
  OccupiedRanges occupied_;     // of one attempt after the other: it keeps its memory
  std::vector<uint64_t> last_;  // offsets of the last attempt
};

}  // namespace

OfflinePlan plan_offline(std::span<const PlannedBlock> blocks) { return Planner(blocks).run(); }

}  // namespace fragscope::replay
