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
#include "replay/client_calls.h"
#include "replay/figures.h"

namespace fragscope::replay {

class RecordedSegments final : public model::SegmentProvider {
 public:
  struct Segment {
    uint64_t address = 0;
    uint64_t size = 0;
    uint64_t stream = 0;
  };

  explicit RecordedSegments(VerifyCounts& counts) : counts_(counts) {}

  // What the recorded allocator did inside the call that the model is about to make.
  void begin_call(OpSpan own, uint64_t device_free) {
    own_ = own;
    position_ = 0;
    matched_ = true;
    device_free_ = device_free;
  }
  // True: every recorded call was predicted and the other way round. mismatch() says what was not.
  bool end_call() { return own_.empty() ? matched_ : end_of_window(); }

  struct Mismatch {
    std::string predicted;
    std::string recorded;
  };
  const Mismatch& mismatch() const { return mismatch_; }

  // The recorded segments, oldest first.
  std::vector<Segment> segments() const;
  bool holds(uint64_t address, uint64_t size) const;

  // While a state is rebuilt nothing is counted, and the next device_malloc gets the address of
  // answer_next(), whatever its size.
  void set_building(bool building) { building_ = building; }
  void answer_next(uint64_t address) { forced_ = address; }
  void set_total(uint64_t bytes) { total_ = bytes; }
  // Pages of expandable segments came: their state cannot be rebuilt from the recording.
  bool saw_expandable() const { return saw_expandable_; }

  std::optional<uint64_t> device_malloc(uint64_t bytes) override;
  void device_free(uint64_t address, uint64_t bytes) override;
  model::DeviceMemoryInfo memory_info() override { return {device_free_, total_}; }
  std::optional<uint64_t> reserve(uint64_t bytes) override;
  bool map(uint64_t address, uint64_t bytes) override;
  void unmap(uint64_t address, uint64_t bytes) override;

 private:
  bool end_of_window();
  void take_notice(const BlockOp& op);
  const BlockOp* next_call();
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
  OpSpan own_;
  size_t position_ = 0;
  bool matched_ = true;
  Mismatch mismatch_;
  bool building_ = false;
  bool saw_expandable_ = false;
  std::optional<uint64_t> forced_;
  uint64_t next_invented_ = 0x7f00'0000'0000'0000;
  uint64_t device_free_ = 0;
  uint64_t total_ = 0;  // of the device
};

}  // namespace fragscope::replay
