// Answers the model's calls for segments with the recorded ones, and counts which of the calls the
// model made as recorded: same moment (between the same client calls, same order), same size.
//
// Only base addresses and refusals come from the recording. A call that was not recorded gets an
// address of its own, far from any device, so that the replay can go on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/segment_provider.h"
#include "model/stats.h"
#include "replay/client_calls.h"
#include "replay/figures.h"

namespace fragscope::replay {

class RecordedSegments final : public model::SegmentProvider {
 public:
  struct Segment {
    uint64_t address = 0;
    uint64_t size = 0;
    uint64_t stream = 0;
    model::PoolId pool = {};
    bool expandable = false;    // pages of an expandable segment
    std::optional<bool> small;  // which pool; absent: see the size, or what lies in it
  };

  // An attempt failed if the recording has the driver's refusal (segment_refused), or if the
  // recorded allocator released memory next, or gave up. `refusals_recorded`: it has all of the
  // driver's, so that the latter are refusals of the allocator's own (unasked_refusals).
  RecordedSegments(VerifyCounts& counts, bool refusals_recorded)
      : counts_(counts), refusals_recorded_(refusals_recorded) {}

  // What the recorded allocator did inside the call that the model is about to make.
  // `fails`: and it gave up in the end.
  void begin_call(OpSpan own, uint64_t device_free, bool fails = false) {
    own_ = own;
    position_ = 0;
    matched_ = true;
    fails_ = fails;
    device_free_ = device_free;
  }
  // True: every recorded call was predicted and the other way round. mismatch() says what was not.
  bool end_call() { return own_.empty() ? matched_ : end_of_window(); }

  struct Mismatch {
    std::string predicted;
    std::string recorded;
  };
  const Mismatch& mismatch() const { return mismatch_; }

  // The recorded segments, oldest first; pages that lie side by side are one.
  std::vector<Segment> segments() const;
  // The recorded segment that holds `address`; nullptr: none does.
  const Segment* segment_of(uint64_t address) const;
  // One that was there when recording began.
  void add(const Segment& segment);
  // Is the segment that holds `address` one of those, still?
  bool is_of_start(uint64_t address) const;
  // Those of them that are left, in this order of their creation: base addresses.
  void set_start_order(const std::vector<uint64_t>& addresses);
  void set_total(uint64_t bytes) { total_ = bytes; }

  std::optional<uint64_t> device_malloc(uint64_t bytes) override;
  void device_free(uint64_t address, uint64_t bytes) override;
  model::DeviceMemoryInfo memory_info() override { return {device_free_, total_}; }
  std::optional<uint64_t> reserve(uint64_t bytes) override;
  bool map(uint64_t address, uint64_t bytes) override;
  void unmap(uint64_t address, uint64_t bytes) override;

 private:
  bool end_of_window();
  void take_notice(const BlockOp& op);
  void take_away(uint64_t address, uint64_t size, bool expandable);
  const BlockOp* next_call();
  bool was_refused();
  void miss(std::string predicted, const BlockOp* recorded);
  void hit(const BlockOp& op);
  uint64_t invent(uint64_t bytes);

  struct Held {
    Segment segment;
    uint64_t number = 0;
  };
  VerifyCounts& counts_;
  std::map<uint64_t, Held> segments_;
  uint64_t next_number_ = 0;
  uint64_t start_count_ = 0;  // numbers below are those of the start
  bool refusals_recorded_;
  bool fails_ = false;
  OpSpan own_;
  size_t position_ = 0;
  bool matched_ = true;
  Mismatch mismatch_;
  uint64_t next_invented_ = 0x7f00'0000'0000'0000;
  uint64_t device_free_ = 0;
  uint64_t total_ = 0;  // of the device
};

}  // namespace fragscope::replay
