// Which of the program's ranges (NVTX, fragscope.range()) is open around an allocation?
//
// The ranges that the allocating thread pushed; a thread without one (autograd's) is taken
// to work for the only thread that has one, where there is only one. Ranges that may end on another
// thread (range_start) do not nest and are left out. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "event/event.h"

namespace fragscope::metrics {

class OpenRanges {
 public:
  void feed(const Event& event) {
    if (event.kind == EventKind::range_push) {
      open_[event.tid].push_back(event.text);
    } else if (event.kind == EventKind::range_pop) {
      const auto at = open_.find(event.tid);
      if (at == open_.end()) return;  // pushed before the recording began
      at->second.pop_back();
      if (at->second.empty()) open_.erase(at);
    }
  }
  // Ids of texts; 0: none is open.
  uint32_t innermost(uint32_t tid) const {
    const std::vector<uint32_t>* ranges = around(tid);
    return ranges ? ranges->back() : 0;
  }
  uint32_t outermost(uint32_t tid) const {
    const std::vector<uint32_t>* ranges = around(tid);
    return ranges ? ranges->front() : 0;
  }

 private:
  const std::vector<uint32_t>* around(uint32_t tid) const {
    const auto own = open_.find(tid);
    if (own != open_.end()) return &own->second;
    return open_.size() == 1 ? &open_.begin()->second : nullptr;
  }

  std::map<uint32_t, std::vector<uint32_t>> open_;  // by thread, never empty
};

}  // namespace fragscope::metrics
