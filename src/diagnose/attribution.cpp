#include "diagnose/attribution.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "diagnose/loop_timeline.h"
#include "diagnose/outside_memory.h"
#include "metrics/open_ranges.h"

namespace fragscope::diagnose {
namespace {

using metrics::BlockState;
using replay::BlockOp;
using replay::BlockOpKind;

constexpr size_t kWarmUpSteps = 2;
constexpr uint64_t kSuspectSteps = 3;  // at least
constexpr uint64_t kFewestSteps = 2;   // … of a run that grew in every step
constexpr double kSuspectShare = 0.5;  // of the steps that are looked at
constexpr size_t kMaxSuspects = 8;
constexpr size_t kMaxChurn = 20;
constexpr size_t kMaxRounding = 10;

template <typename Entry>
void most_first(std::vector<Entry>& entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& left, const Entry& right) { return left.bytes > right.bytes; });
}

template <typename Key, typename Entry>
std::vector<Entry> values_of(const std::map<Key, Entry>& entries, size_t at_most = SIZE_MAX) {
  std::vector<Entry> list;
  for (const auto& [key, entry] : entries) list.push_back(entry);
  most_first(list);
  if (list.size() > at_most) list.resize(at_most);
  return list;
}

struct Device {
  explicit Device(uint32_t main_tid) : timeline(main_tid) {}
  LoopTimeline timeline;
  uint64_t last_alloc = 0;  // seq
  uint64_t peak = 0;        // seq
  uint64_t allocations = 0;
  uint64_t allocated_bytes = 0;
  std::map<uint32_t, Churn> churn;
  std::vector<OutsideShare> outside;
};

class Attributor {
 public:
  Attributor(const metrics::ProcessMetrics& measured, StackRoles& roles,
             const std::unordered_map<uint32_t, std::string>& texts)
      : measured_(measured), roles_(roles), texts_(texts) {
    for (const auto& [index, device] : measured.devices) {
      if (!device.at_peak) continue;
      devices_.emplace(index, Device(measured.facts.pid)).first->second.peak = device.at_peak->seq;
    }
  }

  std::vector<Attribution> run(replay::EventStream& events) {
    find_ends(events);
    replay::BlockPlane plane(measured_.facts.block_source);
    std::vector<BlockOp> ops;
    Event event;
    events.rewind();
    while (events.next(event)) {
      ranges_.feed(event);
      outside_.feed(event);
      plane.feed(event, ops);
      for (const BlockOp& op : ops) apply(op);
      for (auto& [index, device] : devices_) look_at(index, device, event.seq);
    }
    std::vector<Attribution> all;
    for (const auto& [index, device] : devices_) all.push_back(attribution_of(index, device));
    return all;
  }

 private:
  void find_ends(replay::EventStream& events) {
    replay::BlockPlane plane(measured_.facts.block_source);
    std::vector<BlockOp> ops;
    Event event;
    events.rewind();
    while (events.next(event)) {
      plane.feed(event, ops);
      for (const BlockOp& op : ops) {
        const auto at = devices_.find(op.device);
        if (op.kind == BlockOpKind::alloc && at != devices_.end()) at->second.last_alloc = op.seq;
      }
    }
  }

  void apply(const BlockOp& op) {
    const auto at = devices_.find(op.device);
    if (at == devices_.end()) return;
    Device& device = at->second;
    switch (op.kind) {
      case BlockOpKind::alloc: {
        device.timeline.allocate(op, roles_.of(op.stack, op.seq), ranges_);
        const uint64_t bytes = op.size == kUnknown ? 0 : op.size;
        ++device.allocations;
        device.allocated_bytes += bytes;
        Churn& churn = device.churn[op.stack];
        churn.stack = op.stack;
        churn.seq = op.seq;
        churn.add(bytes);
        return;
      }
      case BlockOpKind::block_size:
        return device.timeline.size(op);
      case BlockOpKind::free_requested:
        return device.timeline.free(op);
      default:
        return;
    }
  }

  void look_at(int32_t index, Device& device, uint64_t seq) {
    if (seq == device.peak) {
      device.timeline.take_census();
      const auto& layout = measured_.devices.at(index).at_peak->layout;
      device.outside = outside_.at(index, layout, roles_);
      driver_at_peak_[index] = outside_.driver_bytes(index);
    }
    if (seq == device.last_alloc) device.timeline.take_end();
  }

  Attribution attribution_of(int32_t index, const Device& device) {
    const metrics::DeviceMetrics& metrics = measured_.devices.at(index);
    Attribution out;
    out.device = index;
    out.seq = device.peak;
    out.time_ns = metrics.at_peak->time_ns;
    out.steps = device.timeline.step();
    out.step_seqs = device.timeline.step_seqs();
    out.step_times_ns = device.timeline.step_times_ns();
    out.context_bytes = metrics.facts.context_bytes;
    uint64_t reserved = 0;
    for (const auto& segment : metrics.at_peak->layout) reserved += segment.size;
    out.reserved_bytes = reserved;
    if (measured_.driver_events > 0) {
      out.driver_bytes = driver_at_peak_[index];
      out.outside = device.outside;
    }
    add_blocks(device, out);
    out.growth = growth_of(device);
    out.allocations = device.allocations;
    out.allocated_bytes = device.allocated_bytes;
    out.churn = values_of(device.churn, kMaxChurn);
    return out;
  }

  void add_blocks(const Device& device, Attribution& out) {
    std::map<std::pair<uint32_t, TensorRole>, StackShare> stacks;
    std::map<std::string, NamedShare> modules;
    std::map<std::string, NamedShare> ranges;
    std::map<std::string, NamedShare> outer_ranges;
    std::map<uint32_t, StackShare> rounding;
    for (const BlockLife& block : device.timeline.census()) {
      if (block.size == kUnknown) continue;
      const TensorRole role = role_of_block(block, device.timeline);
      out.live_bytes += block.size;
      if (block.requested == kUnknown) {
        out.requests_known = false;
      } else {
        out.requested_bytes += block.requested;
        StackShare& waste = rounding[block.stack];
        waste.stack = block.stack;
        waste.seq = block.seq;
        waste.add(block.size - std::min(block.size, block.requested));
      }
      out.roles[static_cast<size_t>(role)].add(block.size);
      out.phases[static_cast<size_t>(block.phase)].add(block.size);
      out.lifetimes[static_cast<size_t>(lifetime_of_block(block))].add(block.size);
      StackShare& stack = stacks[{block.stack, role}];
      stack.stack = block.stack;
      stack.seq = block.seq;
      stack.role = role;
      stack.phase = block.phase;
      stack.add(block.size);
      add_parts(block, role, device.timeline.census_step(), out);
      add_module(block, modules);
      add_range(block.range, block.size, ranges);
      add_range(block.outer_range, block.size, outer_ranges);
    }
    out.stacks = values_of(stacks);
    out.modules = values_of(modules);
    out.ranges = values_of(ranges);
    out.outer_ranges = values_of(outer_ranges);
    out.rounding = values_of(rounding, kMaxRounding);
  }

  void add_range(uint32_t text, uint64_t bytes, std::map<std::string, NamedShare>& ranges) const {
    const auto words = texts_.find(text);
    const std::string name = text != 0 && words != texts_.end() ? words->second : std::string();
    ranges[name].name = name;
    ranges[name].add(bytes);
  }

  void add_parts(const BlockLife& block, TensorRole role, uint32_t peak_step, Attribution& out) {
    const bool in_module = !roles_.of(block.stack, block.seq).module.empty();
    if (role == TensorRole::activations && in_module) out.activations_in_modules += block.size;
    if (role == TensorRole::temporary && block.act == Act::optimizer) {
      out.optimizer_temporaries += block.size;
    }
    if (role == TensorRole::gradients && block.step < peak_step) {
      out.gradients_of_earlier_steps += block.size;
    }
  }

  void add_module(const BlockLife& block, std::map<std::string, NamedShare>& modules) {
    const StackRole& role = roles_.of(block.stack, block.seq);
    NamedShare& share = modules[role.module + "\n" + role.file + "\n" + std::to_string(role.line)];
    share.name = role.module;
    share.file = role.file;
    share.line = role.line;
    share.add(block.size);
  }

  static Growth growth_of(const Device& device) {
    Growth growth;
    const std::vector<uint64_t>& ends = device.timeline.step_ends();
    growth.trained = device.timeline.step() > 0;
    add_suspects(device, rises_from(ends, kWarmUpSteps), growth);
    if (growth.suspects.empty() && growth.trained && rises_from(ends, 0)) {
      add_faint_suspects(device, growth);
    }
    if (ends.size() <= kWarmUpSteps) return growth;
    growth.steps = ends.size() - kWarmUpSteps;
    growth.first_bytes = ends[kWarmUpSteps];
    growth.last_bytes = ends.back();
    std::vector<int64_t> changes;
    for (size_t i = kWarmUpSteps + 1; i < ends.size(); ++i) {
      changes.push_back(static_cast<int64_t>(ends[i]) - static_cast<int64_t>(ends[i - 1]));
    }
    if (changes.empty()) return growth;
    const auto middle = changes.begin() + static_cast<std::ptrdiff_t>(changes.size() / 2);
    std::nth_element(changes.begin(), middle, changes.end());
    growth.median_change = *middle;
    return growth;
  }

  // Every step from `first` on ended with more than the one before it.
  static bool rises_from(const std::vector<uint64_t>& ends, size_t first) {
    if (ends.size() < first + 2) return false;
    return std::adjacent_find(ends.begin() + static_cast<std::ptrdiff_t>(first), ends.end(),
                              std::greater_equal<>()) == ends.end();
  }

  // Blocks that were made after the warm-up and long enough before the end. A short run has few
  // such steps: then all of them must agree, and so must the level at the ends of the steps.
  static void add_suspects(const Device& device, bool rises, Growth& growth) {
    const LoopTimeline& timeline = device.timeline;
    const uint32_t last = growth.trained ? timeline.step() : timeline.calls();
    std::map<uint32_t, GrowthSuspect> by_stack;
    std::map<uint32_t, std::set<uint32_t>> steps;
    for (const BlockLife& block : timeline.survivors()) {
      const uint32_t step = growth.trained ? block.step : block.call;
      if (block.size == kUnknown || step < kWarmUpSteps || step + 2 > last) continue;
      if (!growth.trained && block.act != Act::forward) continue;
      GrowthSuspect& suspect = by_stack[block.stack];
      suspect.stack = block.stack;
      suspect.seq = block.seq;
      suspect.add(block.size);
      steps[block.stack].insert(step);
    }
    const uint64_t looked_at = last > kWarmUpSteps + 1 ? last - kWarmUpSteps - 1 : 0;
    for (auto& [stack, suspect] : by_stack) {
      suspect.steps = steps[stack].size();
      const bool often =
          static_cast<double>(suspect.steps) >= kSuspectShare * static_cast<double>(looked_at);
      const bool always = rises && suspect.steps >= kFewestSteps && suspect.steps == looked_at;
      if (!always && (suspect.steps < kSuspectSteps || !often)) continue;
      growth.suspects.push_back(suspect);
      growth.suspect_bytes += suspect.bytes;
    }
    most_first(growth.suspects);
    if (growth.suspects.size() > kMaxSuspects) growth.suspects.resize(kMaxSuspects);
  }

  // Stacks that left blocks behind in every step that ended, the first ones included: what is made
  // once (weights, optimizer state) and what the next step overwrites did not.
  static void add_faint_suspects(const Device& device, Growth& growth) {
    const uint32_t ended = device.timeline.step();
    std::map<uint32_t, GrowthSuspect> by_stack;
    std::map<uint32_t, std::set<uint32_t>> steps;
    for (const BlockLife& block : device.timeline.survivors()) {
      if (block.size == kUnknown || !block.told || block.step >= ended) continue;
      GrowthSuspect& suspect = by_stack[block.stack];
      suspect.stack = block.stack;
      suspect.seq = block.seq;
      suspect.add(block.size);
      steps[block.stack].insert(block.step);
    }
    for (auto& [stack, suspect] : by_stack) {
      suspect.steps = steps[stack].size();
      if (suspect.steps != ended) continue;
      growth.sure = false;
      growth.suspects.push_back(suspect);
      growth.suspect_bytes += suspect.bytes;
    }
    most_first(growth.suspects);
    if (growth.suspects.size() > kMaxSuspects) growth.suspects.resize(kMaxSuspects);
  }

  const metrics::ProcessMetrics& measured_;
  StackRoles& roles_;
  const std::unordered_map<uint32_t, std::string>& texts_;
  std::map<int32_t, Device> devices_;
  std::map<int32_t, uint64_t> driver_at_peak_;
  metrics::OpenRanges ranges_;
  OutsideMemory outside_;
};

}  // namespace

std::string_view phase_name(LoopPhase phase) {
  constexpr std::array<std::string_view, kLoopPhases> kNames = {"setup", "between", "forward",
                                                                "backward", "optimizer"};
  return kNames[static_cast<size_t>(phase)];
}

std::string_view role_name(TensorRole role) {
  constexpr std::array<std::string_view, kTensorRoles> kNames = {
      "parameters", "gradients", "optimizer_state", "activations",
      "inputs",     "workspace", "temporary",       "unknown"};
  return kNames[static_cast<size_t>(role)];
}

std::string_view lifetime_name(Lifetime lifetime) {
  constexpr std::array<std::string_view, kLifetimes> kNames = {"step", "steps", "run"};
  return kNames[static_cast<size_t>(lifetime)];
}

std::vector<Attribution> attribute(replay::EventStream& events,
                                   const metrics::ProcessMetrics& measured, StackRoles& roles,
                                   const std::unordered_map<uint32_t, std::string>& texts) {
  return Attributor(measured, roles, texts).run(events);
}

}  // namespace fragscope::diagnose
