#include "diagnose/advice.h"

#include <algorithm>
#include <memory>

#include "replay/backend.h"
#include "replay/parallel.h"

namespace fragscope::diagnose {
namespace {

using replay::CallKind;
using replay::CallList;
using replay::RecordedDevice;

constexpr double kNoticeable = 0.005;  // of the smaller figure
// Calls times settings; about half a minute on two cores.
constexpr uint64_t kExhaustiveWork = 600'000'000;
constexpr size_t kKeptAtLeast = 8;  // settings that reach the whole list

bool noticeably_less(uint64_t left, uint64_t right) {
  return static_cast<double>(left) * (1.0 + kNoticeable) < static_cast<double>(right);
}

// The first `share` of a list; what lives at its end stays alive.
CallList cut(const CallList& list, double share) {
  CallList part = list;
  part.calls.resize(static_cast<size_t>(static_cast<double>(list.calls.size()) * share));
  if (!part.seqs.empty()) part.seqs.resize(part.calls.size());
  return part;
}

class Search {
 public:
  Search(const replay::RecordedProcess& process, size_t device, const AdviceSettings& settings,
         const std::function<void(size_t, size_t)>& progress)
      : process_(process),
        device_(process.devices[device]),
        settings_(settings),
        progress_(progress),
        target_(device_.backend_device()) {
    if (settings.device_bytes) target_.capacity = *settings.device_bytes;
    if (settings.device_bytes) target_.total_bytes = *settings.device_bytes;
  }

  Advice run() {
    Advice advice;
    std::vector<std::string> grid = settings_grid(process_.rules.profile);
    if (std::find(grid.begin(), grid.end(), process_.rules.conf) == grid.end()) {
      grid.push_back(process_.rules.conf);
    }
    advice.searched = grid.size();
    const uint64_t work = grid.size() * device_.calls.calls.size();
    advice.exhaustive = work <= kExhaustiveWork;
    total_ = advice.exhaustive ? grid.size() : grid.size() + grid.size() / 2 + grid.size() / 4;
    if (!advice.exhaustive) {
      grid = survivors(std::move(grid), 0.25, 2);
      grid = survivors(std::move(grid), 0.5, 2);
    }
    advice.tried = try_all(grid, device_.calls);
    std::stable_sort(advice.tried.begin(), advice.tried.end(),
                     [&](const auto& left, const auto& right) { return sooner(left, right); });
    mark_front(advice.tried);
    advice.default_settings = find(advice.tried, "");
    advice.recorded_settings = find(advice.tried, process_.rules.conf);
    choose(advice);
    bounds(advice);
    return advice;
  }

 private:
  // A strict weak order for sorting: by the objective to the byte, then fewer options.
  bool sooner(const TriedSettings& left, const TriedSettings& right) const {
    const auto key = [&](const TriedSettings& tried) {
      const bool mallocs = settings_.objective == Objective::mallocs;
      return std::tuple(tried.ooms, mallocs ? tried.segment_calls : tried.reserved_peak,
                        mallocs ? tried.reserved_peak : tried.segment_calls, tried.options);
    };
    return key(left) < key(right);
  }

  // The better part of `grid` on the first `share` of the calls; the default and the recorded
  // settings always stay.
  std::vector<std::string> survivors(std::vector<std::string> grid, double share, size_t divisor) {
    std::vector<TriedSettings> tried = try_all(grid, cut(device_.calls, share));
    std::stable_sort(tried.begin(), tried.end(),
                     [&](const auto& left, const auto& right) { return sooner(left, right); });
    const size_t kept = std::max(grid.size() / divisor, kKeptAtLeast);
    std::vector<std::string> next;
    for (size_t i = 0; i < tried.size(); ++i) {
      const std::string& name = tried[i].settings;
      if (i < kept || name.empty() || name == process_.rules.conf) next.push_back(name);
    }
    return next;
  }

  std::vector<TriedSettings> try_all(const std::vector<std::string>& grid, const CallList& list) {
    std::vector<TriedSettings> tried(grid.size());
    const size_t before = done_;
    replay::run_in_parallel(
        grid.size(), settings_.threads, [&](size_t i) { tried[i] = try_one(grid[i], list); },
        [&](size_t done) {
          done_ = before + done;
          if (progress_) progress_(std::min(done_, total_), total_);
        });
    return tried;
  }

  TriedSettings try_one(const std::string& settings, const CallList& list) const {
    TriedSettings tried;
    tried.settings = settings;
    tried.options = settings.empty() ? 0 : 1 + std::count(settings.begin(), settings.end(), ',');
    // The grid holds what the release accepts, the recorded settings were accepted.
    const auto config = model::parse_config(settings, process_.rules.profile);
    const auto backend =
        replay::torch_backend(process_.rules.profile, config ? *config : process_.rules.config);
    const replay::BackendRun run = backend->run(list, target_);
    tried.ooms = run.figures.ooms.size();
    tried.reserved_peak = run.figures.reserved.peak;
    tried.segment_calls = run.figures.device_mallocs + run.figures.device_frees;
    tried.retries = run.figures.alloc_retries;
    return tried;
  }

  static TriedSettings find(const std::vector<TriedSettings>& tried, const std::string& settings) {
    for (const TriedSettings& each : tried) {
      if (each.settings == settings) return each;
    }
    return {};
  }

  static void mark_front(std::vector<TriedSettings>& tried) {
    uint64_t fewest = UINT64_MAX;
    std::vector<TriedSettings*> by_peak;
    for (TriedSettings& each : tried) by_peak.push_back(&each);
    std::stable_sort(by_peak.begin(), by_peak.end(), [](const auto* left, const auto* right) {
      return std::tuple(left->ooms, left->reserved_peak, left->segment_calls, left->options) <
             std::tuple(right->ooms, right->reserved_peak, right->segment_calls, right->options);
    });
    for (TriedSettings* each : by_peak) {
      if (each->segment_calls >= fewest) continue;
      fewest = each->segment_calls;
      each->on_pareto_front = true;
    }
  }

  // Better than the default, not worse on the cut runs; of those about as good as the best one the
  // one with fewest options.
  void choose(Advice& advice) {
    const CallList shorter = cut(device_.calls, 0.90);
    const CallList short_by_little = cut(device_.calls, 0.97);
    const TriedSettings& otherwise = advice.default_settings;
    size_t examined = 0;
    for (const TriedSettings& each : advice.tried) {
      if (!better(each, otherwise, settings_.objective)) continue;
      if (advice.best && better(*advice.best, each, settings_.objective)) break;
      if (advice.best && each.options >= advice.best->options) continue;
      if (++examined > kKeptAtLeast) break;
      const bool robust = not_worse_on(shorter, each) && not_worse_on(short_by_little, each);
      if (robust) advice.best = each;
    }
  }

  bool not_worse_on(const CallList& list, const TriedSettings& each) {
    return !better(try_one("", list), try_one(each.settings, list), settings_.objective);
  }

  void bounds(Advice& advice) const {
    const replay::BackendRun plan = replay::plan_backend()->run(device_.calls, target_);
    advice.live_peak = plan.live_peak.value_or(plan.figures.allocated.peak);
    advice.plan_peak = plan.figures.reserved.peak;
    advice.shares = shares_at_peak();
  }

  // One pass to find the peak, one to see what becomes of the blocks that live there.
  PeakShares shares_at_peak() const {
    const auto& calls = device_.calls.calls;
    uint64_t live = 0;
    uint64_t peak = 0;
    size_t at = 0;
    std::vector<uint64_t> sizes(device_.calls.slots, 0);
    const auto step = [&](const replay::Call& call) {
      if (call.kind == CallKind::alloc) {
        sizes[call.slot] = call.bytes;
        live += call.bytes;
      } else if (call.kind == CallKind::free || call.kind == CallKind::free_later) {
        live -= sizes[call.slot];
        sizes[call.slot] = 0;
      }
    };
    for (size_t i = 0; i < calls.size(); ++i) {
      step(calls[i]);
      if (live > peak) {
        peak = live;
        at = i;
      }
    }
    std::fill(sizes.begin(), sizes.end(), 0);
    live = 0;
    for (size_t i = 0; i <= at && i < calls.size(); ++i) step(calls[i]);
    PeakShares shares;
    for (size_t i = at + 1; i < calls.size(); ++i) {
      const replay::Call& call = calls[i];
      if (call.kind != CallKind::free && call.kind != CallKind::free_later) continue;
      shares.returned += sizes[call.slot];
      sizes[call.slot] = 0;
    }
    shares.kept = peak - shares.returned;
    return shares;
  }

  const replay::RecordedProcess& process_;
  const RecordedDevice& device_;
  const AdviceSettings& settings_;
  const std::function<void(size_t, size_t)>& progress_;
  replay::BackendDevice target_;
  size_t done_ = 0;
  size_t total_ = 0;
};

}  // namespace

bool better(const TriedSettings& left, const TriedSettings& right, Objective objective) {
  if (left.ooms != right.ooms) return left.ooms < right.ooms;
  const bool mallocs = objective == Objective::mallocs;
  return mallocs ? noticeably_less(left.segment_calls, right.segment_calls)
                 : noticeably_less(left.reserved_peak, right.reserved_peak);
}

Advice advise(const replay::RecordedProcess& process, size_t device, const AdviceSettings& settings,
              const std::function<void(size_t, size_t)>& progress) {
  return Search(process, device, settings, progress).run();
}

}  // namespace fragscope::diagnose
