#include "diagnose/twin.h"

#include <algorithm>
#include <map>

namespace fragscope::diagnose {
namespace {

using replay::Call;
using replay::CallKind;
using replay::CallList;

const char* word_of(CallKind kind) {
  constexpr const char* kWords[] = {"alloc",    "refused",    "free", "free, held by a stream",
                                    "complete", "empty_cache"};
  return kWords[static_cast<size_t>(kind)];
}

// The list's calls one after another, with numbers for its streams and pools.
class Walk {
 public:
  explicit Walk(const CallList& list) : list_(list) {}

  struct Step {
    CallKind kind;
    uint64_t bytes;
    uint32_t slot;
    size_t stream;
    size_t pool;
    bool operator==(const Step&) const = default;
  };

  bool has(size_t index) const { return index < list_.calls.size(); }
  Step at(size_t index) {
    const Call& call = list_.calls[index];
    const replay::CallOrigin& origin = list_.origins[call.origin];
    const auto stream = streams_.try_emplace(origin.stream, streams_.size()).first;
    const auto pool =
        pools_.try_emplace({origin.pool.first, origin.pool.second}, pools_.size()).first;
    return {call.kind, call.bytes, call.slot, stream->second, pool->second};
  }
  std::string text(size_t index) {
    if (!has(index)) return "nothing";
    const Step step = at(index);
    std::string text = word_of(step.kind);
    if (step.kind == CallKind::alloc || step.kind == CallKind::refused) {
      text += " " + std::to_string(step.bytes);
    }
    if (step.kind != CallKind::empty_cache) text += " (block " + std::to_string(step.slot) + ")";
    if (step.stream != 0) text += ", stream " + std::to_string(step.stream);
    return text;
  }
  std::optional<uint64_t> seq(size_t index) const {
    if (!has(index) || index >= list_.seqs.size()) return std::nullopt;
    return list_.seqs[index];
  }

 private:
  const CallList& list_;
  std::map<uint64_t, size_t> streams_;
  std::map<std::pair<uint64_t, uint64_t>, size_t> pools_;
};

using Read = std::optional<uint64_t> (*)(const metrics::DeviceMetrics&);

std::optional<uint64_t> heap_peak(const metrics::DeviceMetrics& device,
                                  metrics::KnownLevel metrics::HeapFigures::*level) {
  if (!device.heap) return std::nullopt;
  return ((*device.heap).*level).peak;
}

// Device memory beside the framework's allocator, at most: of both at their own peaks.
std::optional<uint64_t> outside(const metrics::DeviceMetrics& device) {
  const auto driver = device.driver.peak;
  const auto reserved = heap_peak(device, &metrics::HeapFigures::reserved);
  if (!driver || !reserved) return std::nullopt;
  return *driver - std::min(*driver, *reserved);
}

struct Row {
  const char* name;
  bool exact;
  Read read;
};
constexpr Row kRows[] = {
    {"requested peak", true,
     [](const auto& d) { return heap_peak(d, &metrics::HeapFigures::requested); }},
    {"allocated peak", true,
     [](const auto& d) { return heap_peak(d, &metrics::HeapFigures::allocated); }},
    {"reserved peak", true,
     [](const auto& d) { return heap_peak(d, &metrics::HeapFigures::reserved); }},
    {"segments peak", true,
     [](const auto& d) { return heap_peak(d, &metrics::HeapFigures::segments); }},
    {"refused requests", true,
     [](const auto& d) { return d.heap ? std::optional<uint64_t>(d.ooms.size()) : std::nullopt; }},
    {"driver bytes peak", false, [](const auto& d) { return d.driver.peak; }},
    {"beside the allocator", false, outside},
    {"in no book of the process", false,
     [](const auto& d) -> std::optional<uint64_t> {
       if (!d.memory_info || d.memory_info->last_unexplained < 0) return std::nullopt;
       return static_cast<uint64_t>(d.memory_info->last_unexplained);
     }},
    {"device memory", false, [](const auto& d) { return d.facts.total_bytes; }},
};

}  // namespace

RequestComparison compare_requests(const CallList& real, const CallList& twin) {
  RequestComparison result;
  result.real = real.calls.size();
  result.twin = twin.calls.size();
  Walk left(real);
  Walk right(twin);
  size_t index = 0;
  while (left.has(index) && right.has(index) && left.at(index) == right.at(index)) ++index;
  result.equal = index;
  if (left.has(index) || right.has(index)) {
    result.first = {left.text(index), right.text(index), left.seq(index), right.seq(index)};
  }
  return result;
}

TwinComparison compare_twins(const TwinDevice& real, const TwinDevice& twin) {
  static const CallList kNothing;
  TwinComparison result;
  result.requests = compare_requests(real.recorded ? real.recorded->calls : kNothing,
                                     twin.recorded ? twin.recorded->calls : kNothing);
  for (const Row& row : kRows) {
    TwinFigure figure{row.name, row.exact, std::nullopt, std::nullopt};
    if (real.measured != nullptr) figure.real = row.read(*real.measured);
    if (twin.measured != nullptr) figure.twin = row.read(*twin.measured);
    if (figure.real || figure.twin) result.figures.push_back(figure);
  }
  return result;
}

bool TwinComparison::equal() const {
  const auto wrong = [](const TwinFigure& figure) { return figure.exact && figure.differs(); };
  return requests.all_equal() && std::none_of(figures.begin(), figures.end(), wrong);
}

}  // namespace fragscope::diagnose
