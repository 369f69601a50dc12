// What-if: one device's recorded client calls drive the allocator model over a simulated device,
// under any configuration, release and device size. Addresses are the model's own.
//
// What it assumes: the client asks for the same blocks in the same order whatever the allocator
// does; a block that other streams used comes back when it did in the recording (the latest
// moment that the recording allows); a request that failed in the recording and succeeds here is
// given back at once, since what the client would have done with it is not known.
//
// Threads: one at a time. Ownership: borrows the profile.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "model/caching_allocator.h"
#include "model/device_memory.h"
#include "model/simulated_segments.h"
#include "replay/client_calls.h"
#include "replay/figures.h"
#include "replay/segments_at.h"

namespace fragscope::replay {

struct WhatIfSettings {
  model::AllocatorConfig config;
  const model::VersionProfile* profile = nullptr;
  int device = 0;
  // Bytes that the allocator can get, in pages of model::kDevicePage.
  uint64_t capacity = model::LocalCapacity::kUnlimited;
  std::optional<uint64_t> total_bytes;  // what cudaMemGetInfo says; absent: the capacity
};

class DeviceWhatIf {
 public:
  explicit DeviceWhatIf(const WhatIfSettings& settings);
  DeviceWhatIf(const DeviceWhatIf&) = delete;
  DeviceWhatIf& operator=(const DeviceWhatIf&) = delete;

  void feed(const BlockOp& op) { calls_.feed(op); }
  void feed_freed(const BlockOp& op) { calls_.feed_freed(op); }
  void finish() { calls_.finish(); }

  ReplayFigures figures() const;
  uint64_t ooms_avoided() const { return ooms_avoided_; }
  std::vector<model::SegmentSnapshot> segments() const { return allocator_.segments(); }
  // When the first request failed in the recording (it may succeed here), or here.
  const std::optional<SegmentsAt>& at_oom() const { return at_oom_; }

 private:
  struct Live {
    model::BlockIndex block = model::kNone;
    uint32_t generation = 0;  // of a pending one
    bool pending = false;
  };

  friend class ClientCalls<DeviceWhatIf>;
  void on_alloc(const BlockOp& op, OpSpan own);
  void on_oom(const BlockOp& op, OpSpan own);
  void on_empty_cache(OpSpan own);
  void on_completions(OpSpan own) { complete(own); }
  void on_free(const BlockOp& op);
  void on_free_pending(const BlockOp& op);
  void on_block_size(const BlockOp&) {}

  model::MallocResult request(const BlockOp& op);
  void complete(OpSpan own);
  void end_live(uint64_t address);

  model::LocalCapacity capacity_;
  model::DeviceMemory memory_;
  model::SimulatedSegments segments_;
  model::CachingAllocator allocator_;
  ClientCalls<DeviceWhatIf> calls_;
  std::unordered_map<uint64_t, Live> live_;  // by recorded address
  std::vector<OomFact> ooms_;
  std::optional<SegmentsAt> at_oom_;
  uint64_t ooms_avoided_ = 0;
  bool sizes_known_ = true;
};

}  // namespace fragscope::replay
