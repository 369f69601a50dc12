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
#include "replay/recorded_segments.h"
#include "replay/segments_at.h"
#include "replay/state_builder.h"

namespace fragscope::replay {

struct VerifySettings {
  model::AllocatorConfig config;  // the recorded process's own
  const model::VersionProfile* profile = nullptr;
  std::optional<uint64_t> total_bytes;  // of the device
};

class DeviceVerifier {
 public:
  explicit DeviceVerifier(const VerifySettings& settings);

  void feed(const BlockOp& op) { calls_.feed(op); }
  void feed_freed(const BlockOp& op) { calls_.feed_freed(op); }
  void finish() { calls_.finish(); }

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
  void on_free(const BlockOp& op);
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

  VerifySettings settings_;
  VerifyCounts counts_;
  RecordedSegments provider_;
  std::optional<model::CachingAllocator> model_;
  ClientCalls<DeviceVerifier> calls_;
  std::unordered_map<uint64_t, Pending> pending_;  // by address
  std::vector<OomFact> ooms_;
  std::optional<uint64_t> available_at_oom_;
  std::optional<SegmentsAt> at_oom_;
  ReplayFigures kept_;         // peaks and counts of the models before the last resync
  bool sizes_known_ = true;    // every allocation came with its requested size
  uint64_t last_address_ = 0;  // of the last allocation that matched
  uint64_t rebuilt_blocks_ = 0;
};

}  // namespace fragscope::replay
