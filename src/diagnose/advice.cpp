#include "diagnose/advice.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "replay/backend.h"
#include "replay/parallel.h"

namespace fragscope::diagnose {
namespace {

using replay::CallKind;
using replay::CallList;
using replay::RecordedDevice;

constexpr double kNoticeable = 0.005;  // of the smaller figure
constexpr size_t kKeptAtLeast = 8;     // settings that reach the whole list
constexpr size_t kClimbFrom = 4;       // best settings whose neighbours are tried

bool noticeably_less(uint64_t left, uint64_t right) {
  return static_cast<double>(left) * (1.0 + kNoticeable) < static_cast<double>(right);
}

// The first calls of a list; what lives at its end stays alive.
CallList first_of(const CallList& list, size_t calls) {
  CallList part = list;
  part.calls.resize(std::min(calls, list.calls.size()));
  if (!part.seqs.empty()) part.seqs.resize(part.calls.size());
  return part;
}

CallList cut(const CallList& list, double share) {
  return first_of(list, static_cast<size_t>(static_cast<double>(list.calls.size()) * share));
}

// "a:1,b:2" -> {a: 1, b: 2}
std::map<std::string, std::string> options_of(const std::string& settings) {
  std::map<std::string, std::string> options;
  for (size_t at = 0; at < settings.size();) {
    const size_t end = std::min(settings.find(',', at), settings.size());
    const std::string option = settings.substr(at, end - at);
    options[option.substr(0, option.find(':'))] = option;
    at = end + 1;
  }
  return options;
}

// One option is added, left out or has another value.
bool are_neighbours(const std::string& left, const std::string& right) {
  const auto first = options_of(left);
  const auto second = options_of(right);
  size_t different = 0;
  for (const auto& [name, option] : first) {
    const auto at = second.find(name);
    different += at == second.end() || at->second != option ? 1 : 0;
  }
  for (const auto& [name, option] : second) different += first.count(name) == 0 ? 1 : 0;
  return different == 1;
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
    advice.exhaustive = work <= settings_.exhaustive_work;
    total_ = advice.exhaustive ? grid.size() : grid.size() + grid.size() / 2 + grid.size() / 4;
    if (!advice.exhaustive) {
      grid = survivors(std::move(grid), 0.25, 2);
      grid = survivors(std::move(grid), 0.5, 2);
    }
    advice.tried = try_all(grid, device_.calls);
    sort(advice.tried);
    if (!advice.exhaustive) climb(advice.tried);
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

  void sort(std::vector<TriedSettings>& tried) const {
    std::stable_sort(tried.begin(), tried.end(),
                     [&](const auto& left, const auto& right) { return sooner(left, right); });
  }

  // Tries what differs from one of the best few in one option, until nothing new is among these.
  void climb(std::vector<TriedSettings>& tried) {
    std::set<std::string> known;
    for (const TriedSettings& each : tried) known.insert(each.settings);
    const std::vector<std::string> all = settings_grid(process_.rules.profile);
    while (true) {
      std::vector<std::string> fresh;
      for (size_t i = 0; i < std::min(kClimbFrom, tried.size()); ++i) {
        for (const std::string& other : all) {
          if (!are_neighbours(tried[i].settings, other)) continue;
          if (known.insert(other).second) fresh.push_back(other);
        }
      }
      if (fresh.empty()) return;
      for (TriedSettings& each : try_all(fresh, device_.calls)) tried.push_back(std::move(each));
      sort(tried);
    }
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
    const std::vector<CallList> parts = {without_steps(2, 0.90), without_steps(1, 0.97)};
    const TriedSettings& otherwise = advice.default_settings;
    size_t examined = 0;
    for (const TriedSettings& each : advice.tried) {
      if (!better(each, otherwise, settings_.objective)) continue;
      if (advice.best && better(*advice.best, each, settings_.objective)) break;
      if (advice.best && each.options >= advice.best->options) continue;
      if (++examined > kKeptAtLeast) break;
      const bool robust = std::all_of(parts.begin(), parts.end(), [&](const CallList& part) {
        return not_worse_on(part, each, otherwise);
      });
      if (robust) advice.best = each;
    }
  }

  // The calls before the last `steps` steps; `share` of them where the steps are not known.
  CallList without_steps(size_t steps, double share) const {
    const auto& starts = settings_.step_seqs;
    const auto& seqs = device_.calls.seqs;
    if (starts.size() < steps || seqs.empty()) return cut(device_.calls, share);
    const auto at = std::lower_bound(seqs.begin(), seqs.end(), starts[starts.size() - steps]);
    return first_of(device_.calls, static_cast<size_t>(at - seqs.begin()));
  }

  // What lets a refused request pass may hold more before it, but must refuse no other.
  bool not_worse_on(const CallList& list, const TriedSettings& each,
                    const TriedSettings& otherwise) const {
    const TriedSettings left = try_one("", list);
    const TriedSettings right = try_one(each.settings, list);
    if (each.ooms < otherwise.ooms) return right.ooms <= left.ooms;
    return !better(left, right, settings_.objective);
  }

  void bounds(Advice& advice) {
    const uint64_t capacity = std::exchange(target_.capacity, model::LocalCapacity::kUnlimited);
    const std::string settings = advice.best ? advice.best->settings : std::string();
    advice.unlimited_peak = try_one(settings, device_.calls).reserved_peak;
    target_.capacity = capacity;
    const replay::BackendRun plan = replay::plan_backend()->run(device_.calls, target_);
    advice.live_peak = plan.live_peak.value_or(plan.figures.allocated.peak);
    advice.plan_peak = plan.figures.reserved.peak;
    advice.shares = shares_at_peak();
    advice.ends_at_refusal = ends_at_refusal();
  }

  bool ends_at_refusal() const {
    const auto& calls = device_.calls.calls;
    const auto request = std::find_if(calls.rbegin(), calls.rend(), [](const replay::Call& call) {
      return call.kind == CallKind::alloc || call.kind == CallKind::refused;
    });
    return request != calls.rend() && request->kind == CallKind::refused;
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
    // What is freed after the last allocation is freed by the program's end.
    size_t end = calls.size();
    while (end > at + 1 && calls[end - 1].kind != CallKind::alloc) --end;
    PeakShares shares;
    for (size_t i = at + 1; i < end; ++i) {
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
