#include "replay/start_order.h"

#include <functional>
#include <queue>

namespace fragscope::replay {

void StartOrder::reset(std::vector<uint64_t> addresses, const std::vector<SegmentChoice>& known) {
  addresses_ = std::move(addresses);
  index_.clear();
  for (size_t i = 0; i < addresses_.size(); ++i) index_[addresses_[i]] = i;
  younger_.assign(addresses_.size(), {});
  choices_.clear();
  for (const SegmentChoice& choice : known) learn(choice);
}

// Is `younger` known to be younger than `older`, over any number of choices?
bool StartOrder::follows(size_t younger, size_t older) const {
  std::vector<bool> seen(addresses_.size());
  std::vector<size_t> open = {older};
  while (!open.empty()) {
    const size_t at = open.back();
    open.pop_back();
    if (at == younger) return true;
    if (seen[at]) continue;
    seen[at] = true;
    open.insert(open.end(), younger_[at].begin(), younger_[at].end());
  }
  return false;
}

bool StartOrder::learn(SegmentChoice choice) {
  const auto older = index_.find(choice.first);
  const auto younger = index_.find(choice.second);
  if (older == index_.end() || younger == index_.end()) return false;
  if (older->second == younger->second || follows(younger->second, older->second) ||
      follows(older->second, younger->second)) {
    return false;
  }
  younger_[older->second].push_back(younger->second);
  choices_.push_back(choice);
  return true;
}

// What nothing is known of stays in the assumed order.
std::vector<uint64_t> StartOrder::order() const {
  std::vector<size_t> older(addresses_.size());  // not placed yet, per segment
  for (const auto& list : younger_) {
    for (const size_t at : list) ++older[at];
  }
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < older.size(); ++i) {
    if (older[i] == 0) ready.push(i);
  }
  std::vector<uint64_t> order;
  while (!ready.empty()) {
    const size_t at = ready.top();
    ready.pop();
    order.push_back(addresses_[at]);
    for (const size_t next : younger_[at]) {
      if (--older[next] == 0) ready.push(next);
    }
  }
  return order;
}

}  // namespace fragscope::replay
