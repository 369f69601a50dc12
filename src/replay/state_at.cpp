#include "replay/state_at.h"

#include <algorithm>
#include <map>
#include <utility>

#include "replay/pool_use.h"
#include "replay/recorded_process.h"
#include "replay/verify_pass.h"

namespace fragscope::replay {
namespace {

// The events up to a moment.
class StreamUntil final : public EventStream {
 public:
  StreamUntil(EventStream& events, uint64_t last_seq) : events_(events), last_seq_(last_seq) {}
  bool next(Event& event) override {
    Event following;
    if (!events_.next(following) || following.seq > last_seq_) return false;
    event = following;
    return true;
  }
  std::span<const Event> next_batch() override {
    const auto batch = events_.next_batch();
    const auto later = [&](const Event& event) { return event.seq > last_seq_; };
    return {batch.begin(), std::find_if(batch.begin(), batch.end(), later)};
  }
  void rewind() override { events_.rewind(); }

 private:
  EventStream& events_;
  uint64_t last_seq_;
};

// What is kept of the entries of one device.
class History {
 public:
  History(DeviceState& state, size_t limit) : state_(state), limit_(limit) {}

  // `block_size`: of an alloc, where it is known.
  void add(const StateEntry& entry, bool told = true, uint64_t block_size = 0) {
    keep_origins(entry, block_size);
    if (!told || limit_ == 0) return;
    if (state_.trace.size() == limit_) state_.trace.pop_front();
    state_.trace.push_back(entry);
  }
  // Of the live block that a free is about; nullptr: none is known there.
  const StateEntry* live(uint64_t address) const {
    const auto found = live_.find(address);
    return found != live_.end() ? &found->second.entry : nullptr;
  }
  uint64_t active_bytes() const { return active_bytes_; }
  model::PoolId pool_of_range(uint64_t address) const {
    auto after = pools_.upper_bound(address);
    return after == pools_.begin() ? model::PoolId{} : std::prev(after)->second;
  }

 private:
  struct Live {
    StateEntry entry;
    uint64_t block_size = 0;
  };

  void end_block(uint64_t address) {
    const auto found = live_.find(address);
    if (found == live_.end()) return;
    active_bytes_ -= found->second.block_size;
    live_.erase(found);
  }

  void keep_origins(const StateEntry& entry, uint64_t block_size) {
    switch (entry.action) {
      case model::TraceAction::kAlloc:
        end_block(entry.address);
        live_[entry.address] = {entry, block_size};
        active_bytes_ += block_size;
        state_.blocks[entry.address] = entry.origin;
        return;
      case model::TraceAction::kFreeCompleted:
        end_block(entry.address);
        state_.blocks.erase(entry.address);
        return;
      case model::TraceAction::kSegmentAlloc:
      case model::TraceAction::kSegmentMap:
        state_.ranges[entry.address] = entry.origin;
        pools_[entry.address] = entry.pool;
        return;
      case model::TraceAction::kSegmentFree:
      case model::TraceAction::kSegmentUnmap:
        state_.ranges.erase(entry.address);
        pools_.erase(entry.address);
        return;
      default:
        return;
    }
  }

  DeviceState& state_;
  size_t limit_;
  std::unordered_map<uint64_t, Live> live_;
  uint64_t active_bytes_ = 0;
  std::map<uint64_t, model::PoolId> pools_;  // of segments and mapped ranges
};

// --- recorded -----------------------------------------------------------------------------------

std::optional<model::TraceAction> action_of(const BlockOp& op) {
  switch (op.kind) {
    case BlockOpKind::segment_alloc:
      return op.expandable ? model::TraceAction::kSegmentMap : model::TraceAction::kSegmentAlloc;
    case BlockOpKind::segment_free:
      return op.expandable ? model::TraceAction::kSegmentUnmap : model::TraceAction::kSegmentFree;
    case BlockOpKind::alloc:
      return model::TraceAction::kAlloc;
    case BlockOpKind::free_requested:
      return model::TraceAction::kFreeRequested;
    case BlockOpKind::free_completed:
      return model::TraceAction::kFreeCompleted;
    case BlockOpKind::oom:
      return model::TraceAction::kOom;
    default:
      return std::nullopt;
  }
}

uint64_t known_or(uint64_t value, uint64_t other) { return value == kUnknown ? other : value; }

void add_op(const BlockOp& op, History& history) {
  const auto action = action_of(op);
  if (!action) return;
  StateEntry entry;
  entry.action = *action;
  entry.address = known_or(op.kind == BlockOpKind::oom ? op.device_free : op.address, 0);
  entry.size = known_or(op.requested, known_or(op.size, 0));
  entry.stream = known_or(op.stream, 0);
  entry.pool = pool_of(op);
  entry.origin = {op.seq, op.time_ns, op.stack};
  const bool frees = *action == model::TraceAction::kFreeRequested ||
                     *action == model::TraceAction::kFreeCompleted;
  if (const StateEntry* live = frees ? history.live(entry.address) : nullptr) {
    entry.size = live->size;
    entry.stream = live->stream;
    entry.pool = live->pool;
  }
  history.add(entry, !op.at_start, known_or(op.size, 0));
}

// PyTorch notes in its trace that a snapshot was taken, and of how many active bytes.
void add_snapshot(const Event& event, History& history) {
  StateEntry entry;
  entry.action = model::TraceAction::kSnapshot;
  entry.size = history.active_bytes();
  entry.origin = {event.seq, event.time_ns, event.stack};
  history.add(entry);
}

void add_recorded_trace(EventStream& events, const ProcessFacts& facts, size_t limit,
                        std::vector<DeviceState>& devices) {
  std::map<int32_t, History> histories;
  for (DeviceState& device : devices) histories.try_emplace(device.device, device, limit);
  BlockPlane plane(facts.block_source);
  std::vector<BlockOp> ops;
  events.rewind();
  for (auto batch = events.next_batch(); !batch.empty(); batch = events.next_batch()) {
    for (const Event& event : batch) {
      if (event.kind == EventKind::snapshot) {
        const auto history = histories.find(event.device);
        if (history != histories.end()) add_snapshot(event, history->second);
      }
      plane.feed(event, ops);
      for (const BlockOp& op : ops) {
        const auto history = histories.find(op.device);
        if (history != histories.end()) add_op(op, history->second);
      }
    }
  }
}

void rebuild(EventStream& events, const ProcessFacts& facts, const Rules& rules, size_t limit,
             ProcessState& state) {
  VerifyPass pass(events, facts, rules);
  for (const auto& [seq, number] : pass.changes) state.config = rules.changes.at(number);
  for (const auto& [index, device] : pass.devices) {
    state.devices.push_back({index, device->verifier.segments(), {}, {}, {}});
  }
  add_recorded_trace(events, facts, limit, state.devices);
}

// --- recomputed ---------------------------------------------------------------------------------

class WatchedRun final : public RunWatch {
 public:
  WatchedRun(const CallList& list, DeviceState& state, size_t limit)
      : list_(list), history_(state, limit) {}

  void on_call(size_t index) override { call_ = index; }
  void on_entry(const model::TraceEntry& entry) override {
    StateEntry kept;
    kept.action = entry.action;
    kept.address = entry.address;
    kept.size = entry.size;
    kept.stream = entry.stream;
    kept.origin.seq = list_.seqs[call_];
    kept.pool = pool_for(entry);
    history_.add(kept);
  }

 private:
  model::PoolId pool_for(const model::TraceEntry& entry) const {
    switch (entry.action) {
      case model::TraceAction::kFreeRequested:
      case model::TraceAction::kFreeCompleted: {
        const StateEntry* live = history_.live(entry.address);
        return live != nullptr ? live->pool : model::PoolId{};
      }
      case model::TraceAction::kSegmentFree:
      case model::TraceAction::kSegmentUnmap:
        return history_.pool_of_range(entry.address);
      default:
        return list_.origins[list_.calls[call_].origin].pool;
    }
  }

  const CallList& list_;
  History history_;
  size_t call_ = 0;
};

void cut_after(CallList& list, uint64_t last_seq) {
  const auto later = [&](uint64_t seq) { return seq > last_seq; };
  const auto end = std::find_if(list.seqs.begin(), list.seqs.end(), later);
  const auto count = static_cast<size_t>(end - list.seqs.begin());
  list.seqs.resize(count);
  list.calls.resize(count);
}

// Time and stack of the events that are named.
void complete_origins(EventStream& events, std::vector<DeviceState>& devices) {
  std::unordered_multimap<uint64_t, StateOrigin*> wanted;
  for (DeviceState& device : devices) {
    for (StateEntry& entry : device.trace) wanted.emplace(entry.origin.seq, &entry.origin);
    for (auto& [address, origin] : device.blocks) wanted.emplace(origin.seq, &origin);
    for (auto& [address, origin] : device.ranges) wanted.emplace(origin.seq, &origin);
  }
  events.rewind();
  for (auto batch = events.next_batch(); !batch.empty(); batch = events.next_batch()) {
    for (const Event& event : batch) {
      for (auto [at, end] = wanted.equal_range(event.seq); at != end; ++at) {
        at->second->time_ns = event.time_ns;
        at->second->stack = event.stack;
      }
    }
  }
}

void recompute(EventStream& events, RecordedProcess& process, const StateSettings& settings,
               ProcessState& state) {
  const auto backend = torch_backend(state.profile, state.config);
  state.devices.reserve(process.devices.size());
  for (RecordedDevice& recorded : process.devices) {
    if (settings.seq) cut_after(recorded.calls, *settings.seq);
    DeviceState& device = state.devices.emplace_back();
    device.device = recorded.device;
    WatchedRun watch(recorded.calls, device, settings.trace_entries);
    BackendDevice place = recorded.backend_device();
    place.watch = &watch;
    device.segments = backend->run(recorded.calls, place).segments;
  }
  complete_origins(events, state.devices);
}

}  // namespace

Result<ProcessState> state_at(EventStream& events, const ProcessFacts& facts,
                              const ReplayOptions& options, const StateSettings& settings) {
  ReadSettings reading;
  reading.with_calls = options.what_if();
  reading.with_seqs = true;
  reading.split_rule = options.split_rule;
  reading.device_memory = options.device_memory;
  RecordedProcess process = read_process(events, facts, reading);
  const auto asked = asked_rules(facts, options);
  if (!asked && options.what_if()) return asked.error();
  const bool recomputed = options.what_if() || process.modelled;
  if (options.what_if() && !process.modelled && !process.undecidable.empty()) {
    return Error{ErrorCode::kInvalidArgument, process.undecidable};
  }
  const Rules& rules = options.what_if() ? asked.value() : process.rules;
  ProcessState state;
  state.mode = process.modelled ? ReplayMode::modelled
               : recomputed     ? ReplayMode::what_if
                                : ReplayMode::verified;
  state.profile = rules.profile;
  state.config = rules.config;
  if (recomputed) {
    recompute(events, process, settings, state);
    return state;
  }
  StreamUntil until(events, settings.seq.value_or(UINT64_MAX));
  rebuild(until, facts, rules, settings.trace_entries, state);
  return state;
}

}  // namespace fragscope::replay
