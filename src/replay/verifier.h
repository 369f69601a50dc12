// Verify: one device's recorded client calls drive the allocator model, which predicts the place of
// every block and the moment and size of every segment call before the recorded answer is looked
// at. Where the model is wrong it is put into the recorded state, counted, and goes on.
//
// Threads: one at a time. Ownership: borrows the profile.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "model/caching_allocator.h"
#include "replay/client_calls.h"
#include "replay/figures.h"
#include "replay/pool_use.h"
#include "replay/recorded_segments.h"
#include "replay/segments_at.h"
#include "replay/state_builder.h"

namespace fragscope::replay {

struct VerifySettings {
  model::AllocatorConfig config;  // the recorded process's own
  const model::VersionProfile* profile = nullptr;
  std::optional<uint64_t> total_bytes;       // of the device
  bool refusals_recorded = true;             // failed calls for device memory are in the recording
  std::vector<SegmentChoice> start_choices;  // known ages of segments of the start
};

// What there was when recording began.
struct StartState {
  uint64_t segments = 0;
  uint64_t blocks = 0;
  uint64_t sizes_inferred = 0;  // blocks whose size the recording does not tell
  uint64_t lost = 0;            // blocks that could not be put there
};

class DeviceVerifier {
 public:
  explicit DeviceVerifier(const VerifySettings& settings);

  void feed(const BlockOp& op) {
    if (op.at_start) {
      start_.push_back(op);
      return;
    }
    settle_start();
    calls_.feed(op);
  }
  void feed_freed(const BlockOp& op) {
    settle_start();
    calls_.feed_freed(op);
  }
  void finish() {
    settle_start();
    calls_.finish();
  }
  // From here on the recorded process had other settings.
  void set_config(const model::AllocatorConfig& config) {
    settle_start();
    settings_.config = config;
    model_->set_config(config);
  }
  // Everything that was there when recording began has been fed.
  void settle_start() {
    if (!start_.empty()) take_start();
  }
  // Bytes of the block that the last allocation got, of the live block at an address; kUnknown.
  uint64_t last_block_size() const { return last_block_size_; }
  uint64_t size_at(uint64_t address) const;
  const StartState& start_state() const { return start_state_; }
  // All that is known now of the ages of segments of the start.
  const std::vector<SegmentChoice>& start_choices() const { return start_order_.choices(); }

  const VerifyCounts& counts() const { return counts_; }
  ReplayFigures figures() const;
  // Bytes that the allocator could get in all when the first request failed; absent: none did, or
  // the device's free bytes were not recorded.
  std::optional<uint64_t> available_at_oom() const { return available_at_oom_; }
  std::vector<model::SegmentSnapshot> segments() const { return model_->segments(); }
  // When the first request failed.
  const std::optional<SegmentsAt>& at_oom() const { return at_oom_; }

 private:
  struct Pending {
    model::BlockIndex block = model::kNone;
    uint32_t generation = 0;
    uint64_t size = 0;
  };

  friend class ClientCalls<DeviceVerifier>;
  void on_alloc(const BlockOp& op, OpSpan own);
  void on_oom(const BlockOp& op, OpSpan own);
  void on_empty_cache(OpSpan own);
  void on_completions(OpSpan own);
  // Here, so that of most frees no BlockOp is ever made.
  void on_free(const BlockOp& op) {
    if (model_->free(op.address) == model::FreeOutcome::kUnknown) ++counts_.unknown_frees;
  }
  void on_free_pending(const BlockOp& op);
  void on_block_size(const BlockOp& op);

  void complete_recorded(OpSpan own);
  void forget_completed(OpSpan own);
  void add_pending(uint64_t address, model::BlockIndex block);
  void diverge(uint64_t seq, std::string predicted, std::string recorded, std::string rule,
               std::string reason);
  std::string rule_of(const BlockOp& op, const model::MallocResult& predicted,
                      bool asked_device) const;
  void resync(const PlacedBlock* instead_of_last, model::BlockIndex last);
  void take_start();
  BuiltState rebuild(std::vector<PlacedBlock> blocks);
  void end_pools_of(OpSpan own);
  void note_releases(OpSpan own);
  void learn_from_releases();
  void learn_from_choice(uint64_t recorded, const model::MallocResult& predicted);
  bool empty_cache(OpSpan own);
  std::optional<uint64_t> garbage_bytes(OpSpan own);
  void make_model();
  void verify_release(OpSpan own);

  VerifySettings settings_;
  VerifyCounts counts_;
  RecordedSegments provider_;
  std::optional<model::CachingAllocator> model_;
  ClientCalls<DeviceVerifier> calls_;
  PoolUse pools_;
  std::vector<BlockOp> start_;
  StartState start_state_;
  StartOrder start_order_;
  std::vector<BlockOp> releases_;                  // of segments of the start, in the present call
  std::unordered_map<uint64_t, Pending> pending_;  // by address
  std::vector<OomFact> ooms_;
  std::optional<uint64_t> available_at_oom_;
  std::optional<SegmentsAt> at_oom_;
  ReplayFigures kept_;         // peaks and counts of the models before the last resync
  bool sizes_known_ = true;    // every allocation came with its requested size
  uint64_t last_address_ = 0;  // of the last allocation that matched
  uint64_t last_block_size_ = kUnknown;
  uint64_t rebuilt_blocks_ = 0;
};

}  // namespace fragscope::replay
