#include "diagnose/loop_timeline.h"

#include <algorithm>

namespace fragscope::diagnose {
namespace {

// A step ends late for what the program keeps until it is overwritten: losses, outputs, batches.
constexpr uint32_t kStepsOfAStep = 1;

}  // namespace

void LoopTimeline::enter(LoopPhase phase, const replay::BlockOp& op) {
  if (phase == phase_) return;
  const bool step_ended = phase_ == LoopPhase::backward || phase_ == LoopPhase::optimizer ||
                          phase_ == LoopPhase::between;
  if (phase == LoopPhase::forward && step_ended) {
    step_ends_.push_back(live_bytes_);
    step_seqs_.push_back(op.seq);
    step_times_ns_.push_back(op.time_ns);
    ++step_;
  }
  phase_ = phase;
  ++stretch_;
}

// The phase that an allocation belongs to; moves the loop on.
LoopPhase LoopTimeline::phase_of(const StackRole& role, const replay::BlockOp& op) {
  plain_since_call_ |= role.act == Act::plain;
  if (role.act == Act::optimizer) {
    enter(LoopPhase::optimizer, op);
  } else if (role.in_backward) {
    enter(LoopPhase::backward, op);
  } else if (role.act == Act::forward) {
    enter(LoopPhase::forward, op);
    saw_forward_ = true;
    if (first_forward_stack_ == kNoStack) first_forward_stack_ = op.stack;
    if (first_forward_stack_ == op.stack && plain_since_call_) {
      ++calls_;
      plain_since_call_ = false;
    }
  } else if (role.act == Act::plain && phase_ == LoopPhase::optimizer) {
    enter(LoopPhase::between, op);
  } else if (role.act == Act::plain && phase_ == LoopPhase::backward) {
    return LoopPhase::between;  // an optimizer's step may follow: the stretch goes on
  }
  return phase_;
}

void LoopTimeline::allocate(const replay::BlockOp& op, const StackRole& role,
                            const metrics::OpenRanges& ranges) {
  BlockLife life;
  life.address = op.address;
  life.size = op.size;
  life.requested = op.requested;
  life.seq = op.seq;
  life.stack = op.stack;
  life.tid = op.tid;
  life.range = ranges.innermost(op.tid);
  life.outer_range = ranges.outermost(op.tid);
  life.act = role.act;
  life.told = role.told;
  life.phase = phase_of(role, op);
  life.recomputed = role.in_backward && !role.module.empty();
  life.step = step_;
  life.call = calls_;
  life.stretch = stretch_;
  if (role.in_backward && op.tid != main_tid_) engine_tids_.insert(op.tid);
  if (life.size != kUnknown) live_bytes_ += life.size;
  census_index_.erase(op.address);
  live_[op.address] = life;
}

void LoopTimeline::size(const replay::BlockOp& op) {
  const auto at = live_.find(op.address);
  if (at == live_.end() || at->second.size != kUnknown || op.size == kUnknown) return;
  at->second.size = op.size;
  live_bytes_ += op.size;
  const auto counted = census_index_.find(op.address);
  if (counted != census_index_.end()) census_[counted->second].size = op.size;
}

void LoopTimeline::free(const replay::BlockOp& op) {
  const auto at = live_.find(op.address);
  if (at == live_.end()) return;
  if (at->second.size != kUnknown) live_bytes_ -= std::min(live_bytes_, at->second.size);
  live_.erase(at);
  const auto counted = census_index_.find(op.address);
  if (counted == census_index_.end()) return;
  if (ended_ && !is_engine(op.tid)) return;
  BlockLife& life = census_[counted->second];
  life.died_seq = op.seq;
  life.died_tid = op.tid;
  life.died_step = step_;
  life.died_stretch = stretch_;
  census_index_.erase(counted);
}

void LoopTimeline::take_census() {
  census_step_ = step_;
  census_.clear();
  census_index_.clear();
  for (const auto& [address, life] : live_) {
    census_index_[address] = census_.size();
    census_.push_back(life);
  }
}

void LoopTimeline::take_end() {
  survivors_.clear();
  for (const auto& [address, life] : live_) survivors_.push_back(life);
  ended_ = true;
}

Lifetime lifetime_of_block(const BlockLife& block) {
  if (block.died_seq == 0) return Lifetime::run;
  return block.died_step <= block.step + kStepsOfAStep ? Lifetime::step : Lifetime::steps;
}

TensorRole role_of_block(const BlockLife& block, const LoopTimeline& timeline) {
  if (!block.told) return TensorRole::unknown;
  const bool freed = block.died_seq != 0;
  const bool same_stretch = freed && block.died_stretch == block.stretch;
  const bool short_lived =
      freed ? block.died_step <= block.step + kStepsOfAStep
            : timeline.step() > 0 && block.step + kStepsOfAStep >= timeline.step();
  switch (block.act) {
    case Act::workspace:
      return TensorRole::workspace;
    case Act::optimizer:
      return same_stretch ? TensorRole::temporary : TensorRole::optimizer_state;
    case Act::backward: {
      const bool by_engine =
          freed && (timeline.is_engine(block.died_tid) || block.died_tid == block.tid);
      if (same_stretch && by_engine) {
        return block.recomputed ? TensorRole::activations : TensorRole::temporary;
      }
      return TensorRole::gradients;
    }
    case Act::apply:
    case Act::init:
      return freed && same_stretch ? TensorRole::temporary : TensorRole::parameters;
    case Act::forward:
      return short_lived ? TensorRole::activations : TensorRole::unknown;
    case Act::plain:
      break;
  }
  if (!timeline.saw_forward()) return TensorRole::unknown;  // there are no phases
  if (same_stretch) return TensorRole::temporary;
  if (!short_lived) return TensorRole::unknown;
  return block.phase == LoopPhase::forward ? TensorRole::activations : TensorRole::inputs;
}

}  // namespace fragscope::diagnose
