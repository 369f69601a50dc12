#include "enforce/plan_follower.h"

#include <algorithm>
#include <iterator>

namespace fragscope::enforce {
namespace {

constexpr uint64_t kHashStart = 0xcbf29ce484222325;

uint64_t hash_on(uint64_t hash, uint64_t value) {
  hash ^= value;
  hash *= 0x100000001b3;
  return hash ^ (hash >> 29);
}

uint32_t stream_count(const Plan& plan) {
  uint32_t count = 0;
  for (const PlannedRequest& request : plan.requests) count = std::max(count, request.stream + 1);
  return count;
}

template <typename Ranges>
auto first_touching(Ranges& ranges, uint64_t offset) {
  auto at = ranges.upper_bound(offset);
  if (at != ranges.begin()) {
    const auto before = std::prev(at);
    if (offset - before->first < before->second.bytes) return before;
  }
  return at;
}

}  // namespace

PlanFollower::PlanFollower(Plan plan) : plan_(std::move(plan)) {
  streams_.resize(stream_count(plan_));
  synced_ = !plan_.requests.empty();
  index_places();
}

// The contexts along the plan, once around the loop: its first places have two, that of the first
// time and that of later ones.
void PlanFollower::index_places() {
  const std::vector<PlannedRequest>& requests = plan_.requests;
  std::vector<size_t> path(requests.size());
  for (size_t i = 0; i < path.size(); ++i) path[i] = i;
  const size_t loop = requests.size() - plan_.loop_start;
  for (size_t i = 0; loop > 0 && i + 1 < kContext; ++i) path.push_back(plan_.loop_start + i % loop);
  std::unordered_map<uint64_t, size_t> seen;
  for (size_t end = kContext; end <= path.size(); ++end) {
    uint64_t hash = kHashStart;
    for (size_t i = end - kContext; i < end; ++i) hash = hash_on(hash, requests[path[i]].size);
    ++seen[hash];
    places_[hash] = path[end - 1];  // of the last request of the context
  }
  std::erase_if(places_, [&](const auto& entry) { return seen[entry.first] != 1; });
}

void PlanFollower::advance() {
  if (++next_ < plan_.requests.size()) return;
  next_ = plan_.loop_start;
  if (next_ == plan_.requests.size()) synced_ = false;  // the plan is over
}

bool PlanFollower::matches(size_t position, uint64_t size, uint64_t stream) const {
  const PlannedRequest& expected = plan_.requests[position];
  if (expected.size != size) return false;
  const auto& handle = streams_[expected.stream];
  return !handle || *handle == stream;
}

void PlanFollower::remember(uint64_t size) {
  if (recent_.size() == kContext) recent_.erase(recent_.begin());
  recent_.push_back(size);
}

uint64_t PlanFollower::context_hash() const {
  uint64_t hash = kHashStart;
  for (const uint64_t size : recent_) hash = hash_on(hash, size);
  return hash;
}

// The request just remembered ends a context that one place of the plan has alone. Sizes alone
// decide: streams of an earlier program's run have other handles.
bool PlanFollower::find_place(uint64_t size) {
  if (recent_.size() < kContext) return false;
  const auto found = places_.find(context_hash());
  if (found == places_.end() || plan_.requests[found->second].size != size) return false;
  next_ = found->second;
  std::fill(streams_.begin(), streams_.end(), std::nullopt);
  synced_ = true;
  ++counts_.resyncs;
  return true;
}

std::optional<uint64_t> PlanFollower::offer(uint64_t bytes, uint64_t stream) {
  ++counts_.offered;
  if (plan_.requests.empty()) return std::nullopt;
  const uint64_t size = plan_size(bytes);
  remember(size);
  const bool expected = synced_ && matches(next_, size, stream);
  if (!expected && !find_place(size)) {
    ++counts_.unexpected;
    if (++misses_ >= kPatience) synced_ = false;
    return std::nullopt;
  }
  misses_ = 0;
  const size_t position = next_;
  advance();
  return place(position, stream);
}

std::optional<uint64_t> PlanFollower::place(size_t position, uint64_t stream) {
  const PlannedRequest& request = plan_.requests[position];
  streams_[request.stream] = stream;
  if (request.offset == kUnplanned) {
    ++counts_.unplanned;
    return std::nullopt;
  }
  if (!is_free(request.offset, request.size, stream)) {
    ++counts_.occupied;
    return std::nullopt;
  }
  take_over(request.offset, request.size);
  live_[request.offset] = {request.size, stream};
  live_bytes_ += request.size;
  ++counts_.placed;
  return request.offset;
}

bool PlanFollower::is_free(uint64_t offset, uint64_t bytes, uint64_t stream) const {
  if (bytes > plan_.arena_bytes || offset > plan_.arena_bytes - bytes) return false;
  const auto live = first_touching(live_, offset);
  if (live != live_.end() && live->first < offset + bytes) return false;
  for (auto at = first_touching(used_, offset); at != used_.end() && at->first < offset + bytes;
       ++at) {
    if (at->second.stream != stream) return false;
  }
  return true;
}

// What was used before is this block's now; the rests at both ends stay as they are.
void PlanFollower::take_over(uint64_t offset, uint64_t bytes) {
  const uint64_t end = offset + bytes;
  auto at = first_touching(used_, offset);
  while (at != used_.end() && at->first < end) {
    const uint64_t begin = at->first;
    const Range range = at->second;
    at = used_.erase(at);
    if (begin < offset) used_[begin] = {offset - begin, range.stream};
    if (begin + range.bytes > end) used_[end] = {begin + range.bytes - end, range.stream};
  }
}

bool PlanFollower::release(uint64_t offset) {
  const auto at = live_.find(offset);
  if (at == live_.end()) return false;
  used_[offset] = at->second;
  live_bytes_ -= at->second.bytes;
  live_.erase(at);
  return true;
}

}  // namespace fragscope::enforce
