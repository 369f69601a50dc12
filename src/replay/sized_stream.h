// The events of a source that does not tell the sizes of blocks (snapshots: what a freed block was
// rounded up to is nowhere), with the sizes that follow from the allocator's rules.
//
// Threads: one at a time. Ownership: borrows the stream and the facts.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "replay/event_stream.h"
#include "replay/process_facts.h"
#include "replay/verify_pass.h"

namespace fragscope::replay {

class SizedStream final : public EventStream {
 public:
  // `facts`: after settle_release().
  SizedStream(EventStream& events, const ProcessFacts& facts);
  bool next(Event& event) override;
  std::span<const Event> next_batch() override;
  void rewind() override;

 private:
  DeviceVerifier& verifier(int32_t device);
  void feed(const Event& event);
  void settle_start();

  EventStream& events_;
  const ProcessFacts& facts_;
  Rules rules_;
  BlockPlane plane_;
  std::map<int32_t, std::unique_ptr<DeviceVerifier>> devices_;
  std::deque<Event> start_;  // events at_start, and the first one after them
  std::vector<Event> batch_;
  bool started_ = false;
};

}  // namespace fragscope::replay
