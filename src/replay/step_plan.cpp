#include "replay/step_plan.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/bytes.h"
#include "replay/offline_plan.h"

namespace fragscope::replay {
namespace {

constexpr uint64_t kGranularity = 512;
constexpr size_t kContext = 16;      // requests that two places of a step are compared by
constexpr size_t kCandidates = 256;  // earlier places with the same context that are tried

using Requests = std::span<const ProgramRequest>;

bool same(const ProgramRequest& a, const ProgramRequest& b) {
  return a.bytes == b.bytes && a.stream == b.stream;
}

uint64_t context_hash(Requests requests, size_t end) {
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = end - kContext; i < end; ++i) {
    hash = (hash ^ requests[i].bytes ^ uint64_t{requests[i].stream} << 56) * 0x100000001b3;
    hash ^= hash >> 29;
  }
  return hash;
}

// The requests around `anchor` that equal those `length` before them.
ProgramStep extent_of(Requests requests, size_t anchor, size_t length) {
  size_t first = anchor;
  while (first > length && same(requests[first - 1], requests[first - 1 - length])) --first;
  size_t last = anchor;
  while (last < requests.size() && same(requests[last], requests[last - length])) ++last;
  return {first - length, length, (last - (first - length)) / length};
}

size_t covered(const ProgramStep& step) { return step.length * step.repeats; }

void keep_better(Requests requests, std::optional<ProgramStep>& best, const ProgramStep& step) {
  if (step.repeats < kFewestRepeats || covered(step) * kLeastShare < requests.size()) return;
  // Rests of a step that is begun count for neither: a few requests more are no better step.
  const bool better = !best || covered(step) > covered(*best) + best->length ||
                      (covered(step) + step.length >= covered(*best) && step.length < best->length);
  if (better) best = step;
}

// From here on the distance of requests that look alike is a possible step.
void try_anchor(Requests requests, size_t anchor,
                const std::unordered_map<uint64_t, std::vector<uint32_t>>& places,
                std::optional<ProgramStep>& best) {
  if (anchor < kContext || anchor >= requests.size()) return;
  const auto found = places.find(context_hash(requests, anchor));
  if (found == places.end()) return;
  const std::vector<uint32_t>& ends = found->second;
  auto at = std::lower_bound(ends.begin(), ends.end(), anchor);
  for (size_t tried = 0; tried < kCandidates && at != ends.begin(); ++tried) {
    --at;
    const size_t length = anchor - *at;
    keep_better(requests, best, extent_of(requests, anchor, length));
  }
}

size_t position_of(Requests requests, uint64_t seq) {
  return static_cast<size_t>(std::lower_bound(requests.begin(), requests.end(), seq,
                                              [](const ProgramRequest& request, uint64_t value) {
                                                return request.seq < value;
                                              }) -
                             requests.begin());
}

// How long the block lives, in requests, at its longest of the first two rounds.
uint64_t life_in_loop(Requests requests, size_t position, size_t length) {
  uint64_t life = 0;
  for (const size_t at : {position, position + length}) {
    if (at >= requests.size()) continue;
    if (requests[at].death == kNoDeath) return kNoDeath;
    life = std::max<uint64_t>(life, requests[at].death - at);
  }
  return life;
}

// Bytes that live across each of the places where the loop can be cut; `first` is the earliest.
std::vector<uint64_t> crossing_bytes(Requests requests, size_t first, size_t length) {
  std::vector<int64_t> change(length + 1);
  const auto over = [&](size_t begin, size_t end, uint64_t bytes) {  // cuts [begin, end)
    change[begin] += static_cast<int64_t>(bytes);
    change[end] -= static_cast<int64_t>(bytes);
  };
  for (size_t i = 0; i < length; ++i) {
    const uint64_t life = life_in_loop(requests, first + i, length);
    if (life > length) continue;  // has no place in the plan
    const size_t end = i + std::max<size_t>(life, 1);
    const uint64_t size = requests[first + i].bytes;
    over(std::min(i + 1, length), std::min(end, length), size);
    if (end > length) over(0, end - length, size);
  }
  std::vector<uint64_t> bytes(length);
  int64_t now = 0;
  for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<uint64_t>(now += change[i]);
  return bytes;
}

size_t best_cut(Requests requests, const ProgramStep& step) {
  const std::vector<uint64_t> bytes = crossing_bytes(requests, step.start, step.length);
  return step.start +
         static_cast<size_t>(std::min_element(bytes.begin(), bytes.end()) - bytes.begin());
}

class StepPlanner {
 public:
  StepPlanner(Requests requests, size_t loop_start, size_t length)
      : requests_(requests), length_(length), end_(loop_start + length) {
    plan_.loop_start = loop_start;
    plan_.offsets.assign(end_, StepPlan::kNoPlace);
    plan_.deaths.assign(end_, 0);
  }

  StepPlan run() {
    for (size_t position = 0; position < end_; ++position) add(position);
    for (auto& [stream, blocks] : streams_) place(blocks);
    return std::move(plan_);
  }

 private:
  struct Blocks {
    std::vector<PlannedBlock> planned;
    std::vector<size_t> positions;
  };

  void add(size_t position) {
    const ProgramRequest& request = requests_[position];
    PlannedBlock block{request.bytes, static_cast<uint32_t>(position), 0};
    const auto end = static_cast<uint32_t>(end_);
    if (position < plan_.loop_start || length_ == 0) {
      block.death = std::min(request.death, end);
      plan_.deaths[position] = request.death;
    } else {
      const uint64_t life = life_in_loop(requests_, position, length_);
      plan_.deaths[position] = life == kNoDeath ? kNoDeath : static_cast<uint32_t>(position + life);
      if (life > length_) return;  // its next instance would find it alive
      block.death = plan_.deaths[position];
      if (block.death > end) {
        block.birth = static_cast<uint32_t>(plan_.loop_start);
        block.death = end;
      }
    }
    block.death = std::max(block.death, block.birth + 1);
    Blocks& blocks = streams_[request.stream];
    blocks.planned.push_back(block);
    blocks.positions.push_back(position);
  }

  void place(const Blocks& blocks) {
    const OfflinePlan placed = plan_offline(blocks.planned);
    for (size_t i = 0; i < blocks.positions.size(); ++i) {
      plan_.offsets[blocks.positions[i]] = plan_.arena_bytes + placed.offsets[i];
    }
    plan_.arena_bytes += round_up(placed.height, kGranularity);
    plan_.live_peak += placed.live_peak;
  }

  Requests requests_;
  size_t length_;
  size_t end_;
  StepPlan plan_;
  std::map<uint32_t, Blocks> streams_;
};

}  // namespace

std::vector<ProgramRequest> requests_of(const CallList& list) {
  std::vector<ProgramRequest> requests;
  std::vector<uint32_t> in_slot(list.slots, kNoDeath);
  std::unordered_map<uint64_t, uint32_t> streams;
  for (size_t i = 0; i < list.calls.size(); ++i) {
    const Call& call = list.calls[i];
    switch (call.kind) {
      case CallKind::alloc: {
        const uint64_t stream = list.origins[call.origin].stream;
        const auto number = static_cast<uint32_t>(streams.size());
        ProgramRequest request;
        request.bytes = std::max(round_up(call.bytes, kGranularity), kGranularity);
        request.stream = streams.emplace(stream, number).first->second;
        request.death = kNoDeath;
        request.seq = list.seqs.empty() ? 0 : list.seqs[i];
        in_slot[call.slot] = static_cast<uint32_t>(requests.size());
        requests.push_back(request);
        break;
      }
      case CallKind::free:
      case CallKind::complete:
        if (in_slot[call.slot] == kNoDeath) break;
        requests[in_slot[call.slot]].death = static_cast<uint32_t>(requests.size());
        in_slot[call.slot] = kNoDeath;
        break;
      default:
        break;
    }
  }
  return requests;
}

std::optional<ProgramStep> step_by_period(Requests requests) {
  if (requests.size() < kContext * 2) return std::nullopt;
  std::unordered_map<uint64_t, std::vector<uint32_t>> places;
  for (size_t end = kContext; end < requests.size(); ++end) {
    places[context_hash(requests, end)].push_back(static_cast<uint32_t>(end));
  }
  std::optional<ProgramStep> best;
  constexpr size_t kAnchors = 12;
  for (size_t i = 1; i < kAnchors; ++i) {
    try_anchor(requests, requests.size() * i / kAnchors, places, best);
  }
  return best;
}

std::optional<ProgramStep> step_by_marks(Requests requests, std::span<const uint64_t> marks) {
  std::optional<ProgramStep> best;
  for (size_t i = 1; i < marks.size(); ++i) {
    const size_t before = position_of(requests, marks[i - 1]);
    const size_t anchor = position_of(requests, marks[i]);
    if (anchor <= before || anchor >= requests.size()) continue;
    keep_better(requests, best, extent_of(requests, anchor, anchor - before));
  }
  return best;
}

StepPlan plan_step(Requests requests, const std::optional<ProgramStep>& step) {
  if (!step) return StepPlanner(requests, requests.size(), 0).run();
  return StepPlanner(requests, best_cut(requests, *step), step->length).run();
}

}  // namespace fragscope::replay
