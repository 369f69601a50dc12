#include "replay/verify_pass.h"

#include <algorithm>
#include <span>

namespace fragscope::replay {
namespace {

class Pass {
 public:
  Pass(const ProcessFacts& facts, const Rules& rules, const PassSettings& settings,
       VerifyPass& result)
      : facts_(facts), rules_(rules), settings_(settings), result_(result) {}

  void run(EventStream& events) {
    const auto take = [&](const BlockOp& op) {
      VerifyPass::Device* device = device_of(op);
      if (device == nullptr) return;
      device->verifier.feed(op);
      if (device->calls) device->calls->feed(op);
    };
    const auto freed = [&](const BlockOp& op) {
      VerifyPass::Device* device = device_of(op);
      device->verifier.feed_freed(op);
      if (device->calls) device->calls->feed_freed(op);
    };
    events.rewind();
    for (auto batch = events.next_batch(); !batch.empty(); batch = events.next_batch()) {
      while (!batch.empty()) {
        const auto own = until_change(batch);
        result_.plane.feed(own, take, freed);
        batch = batch.subspan(own.size());
        if (batch.empty()) break;
        change(batch.front());
        batch = batch.subspan(1);
      }
    }
    for (auto& [index, device] : result_.devices) device->verifier.finish();
  }

 private:
  std::span<const Event> until_change(std::span<const Event> batch) const {
    if (rules_.changes.empty()) return batch;
    const auto changes = [](const Event& event) {
      return event.kind == EventKind::mark && (event.flags & kFlagSettings) != 0;
    };
    const auto at = std::find_if(batch.begin(), batch.end(), changes);
    return batch.first(static_cast<size_t>(at - batch.begin()));
  }

  void change(const Event& event) {
    const auto found = rules_.changes.find(event.aux);
    if (found == rules_.changes.end()) return;
    changed_ = &found->second;
    result_.changes[event.seq] = event.aux;
    for (auto& [index, device] : result_.devices) device->verifier.set_config(*changed_);
  }

  // nullptr: maybe not an allocator's op; it is kept until the device turns out to have one.
  VerifyPass::Device* device_of(const BlockOp& op) {
    return last_ != nullptr && op.device == last_index_ ? last_ : find_device(op);
  }

  VerifyPass::Device* find_device(const BlockOp& op) {
    const auto found = result_.devices.find(op.device);
    last_index_ = op.device;
    last_ = found != result_.devices.end() ? found->second.get() : nullptr;
    if (last_ != nullptr) return last_;
    if (op.kind == BlockOpKind::segment_refused) {
      refused_before_[op.device].push_back(op);
      return nullptr;
    }
    auto fresh = std::make_unique<VerifyPass::Device>(verify_settings(op.device, facts_, rules_));
    if (changed_ != nullptr) fresh->verifier.set_config(*changed_);
    if (settings_.with_calls) fresh->calls = std::make_unique<CallListBuilder>(settings_.with_seqs);
    last_ = result_.devices.emplace(op.device, std::move(fresh)).first->second.get();
    for (const BlockOp& refused : refused_before_[op.device]) {
      last_->verifier.feed(refused);
      if (last_->calls) last_->calls->feed(refused);
    }
    refused_before_.erase(op.device);
    return last_;
  }

  const ProcessFacts& facts_;
  const Rules& rules_;
  const PassSettings& settings_;
  VerifyPass& result_;
  const model::AllocatorConfig* changed_ = nullptr;  // what holds now; nullptr: the first settings
  VerifyPass::Device* last_ = nullptr;               // of the op before: devices seldom alternate
  int32_t last_index_ = 0;
  std::map<int32_t, std::vector<BlockOp>> refused_before_;  // a device's first request may fail
};

}  // namespace

VerifySettings verify_settings(int32_t device, const ProcessFacts& facts, const Rules& rules) {
  VerifySettings settings;
  settings.config = rules.config;
  settings.profile = &rules.profile;
  settings.total_bytes = facts.device(device).total_bytes;
  settings.refusals_recorded = facts.block_source != BlockSource::snapshot;
  const auto choices = facts.start_choices.find(device);
  if (choices != facts.start_choices.end()) settings.start_choices = choices->second;
  return settings;
}

VerifyPass::VerifyPass(EventStream& events, const ProcessFacts& facts, const Rules& rules,
                       const PassSettings& settings)
    : plane(facts.block_source) {
  Pass(facts, rules, settings, *this).run(events);
}

}  // namespace fragscope::replay
