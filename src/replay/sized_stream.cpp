#include "replay/sized_stream.h"

namespace fragscope::replay {
namespace {

constexpr size_t kBatch = 1024;

Rules rules_for(const ProcessFacts& facts) {
  std::vector<std::string> assumptions;
  return recorded_rules(facts, model::SplitRule::kReleased, assumptions);
}

}  // namespace

SizedStream::SizedStream(EventStream& events, const ProcessFacts& facts)
    : events_(events), facts_(facts), rules_(rules_for(facts)), plane_(facts.block_source) {
  rewind();
}

void SizedStream::rewind() {
  events_.rewind();
  plane_ = BlockPlane(facts_.block_source);
  devices_.clear();
  start_.clear();
  started_ = false;
}

DeviceVerifier& SizedStream::verifier(int32_t device) {
  auto& entry = devices_[device];
  if (!entry) {
    entry = std::make_unique<DeviceVerifier>(verify_settings(device, facts_, rules_));
  }
  return *entry;
}

void SizedStream::feed(const Event& event) {
  plane_.feed(event, [&](const BlockOp& op) { verifier(op.device).feed(op); });
}

// Sizes of the blocks that were there follow from all of them together.
void SizedStream::settle_start() {
  started_ = true;
  Event event;
  while (events_.next(event)) {
    start_.push_back(event);
    if (!(event.flags & kFlagAtStart)) break;
    feed(event);
  }
  for (auto& [index, device] : devices_) device->settle_start();
  for (Event& known : start_) {
    if (!(known.flags & kFlagAtStart) || known.kind != EventKind::alloc) continue;
    if (known.size == kUnknown) known.size = verifier(known.device).size_at(known.address);
  }
}

bool SizedStream::next(Event& event) {
  if (!started_) settle_start();
  if (!start_.empty()) {
    event = start_.front();
    start_.pop_front();
    if (event.flags & kFlagAtStart) return true;
  } else if (!events_.next(event)) {
    return false;
  }
  feed(event);
  if (event.kind == EventKind::alloc && event.size == kUnknown) {
    event.size = verifier(event.device).last_block_size();
  }
  return true;
}

std::span<const Event> SizedStream::next_batch() {
  batch_.clear();
  Event event;
  while (batch_.size() < kBatch && next(event)) batch_.push_back(event);
  return batch_;
}

}  // namespace fragscope::replay
