// PyTorch's CUDA caching allocator (the native backend) of one device, release by release: the same
// calls give the same blocks, segment calls, trace entries and statistics as libc10_cuda.
//
// Used by the replay, by the shim's policy, by the demo program and by the oracle tests.
// Units: bytes; addresses and streams are 64-bit handles (stream 0 is the default stream).
// Threads: none; callers lock. Errors: outcomes, no exceptions (but for memory exhaustion).
// Pure: everything outside comes through SegmentProvider. No call-backs into the caller except
// SegmentProvider and TraceObserver.
// Source of facts: c10/cuda/CUDACachingAllocator.cpp of releases 2.0 … 2.15.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/allocator_config.h"
#include "model/block.h"
#include "model/free_set.h"
#include "model/segment_provider.h"
#include "model/stats.h"
#include "model/trace_entry.h"
#include "model/version_profile.h"

namespace fragscope::model {

enum class MallocOutcome : uint8_t {
  kAllocated,
  kNull,         // 0 bytes were asked for: a null pointer, nothing happened
  kOutOfMemory,  // facts in last_oom()
  kRejected,     // throw_on_cudamalloc_oom: refused in advance, facts in last_oom()
  kAssertion,    // PyTorch fails an internal assertion here, text in last_error()
};

struct MallocResult {
  MallocOutcome outcome = MallocOutcome::kNull;
  BlockIndex block = kNone;  // for free_block(); valid until the block is freed
  uint64_t address = 0;
  uint64_t block_size = 0;

  bool ok() const { return outcome == MallocOutcome::kAllocated; }
};

enum class FreeOutcome : uint8_t {
  kFreed,    // the block is in the free set again
  kPending,  // other streams still use it
  kNull,     // address 0
  kUnknown,  // "invalid device pointer"
};

enum class EmptyCacheOutcome : uint8_t { kDone, kAssertion };

// What PyTorch's out-of-memory message is made of.
struct OomFacts {
  uint64_t requested = 0;
  uint64_t rounded = 0;      // size of the trace entry
  uint64_t segment = 0;      // "Tried to allocate"
  uint64_t device_free = 0;  // after the flush
  uint64_t device_total = 0;
  std::optional<uint64_t> allowed;  // limit by the memory fraction, if one is set
  uint64_t allocated = 0;           // "allocated by PyTorch"
  uint64_t private_free = 0;        // free bytes of private pools ("allocated in private pools")
  uint64_t reserved = 0;
};

class CachingAllocator {
 public:
  // `profile` and `provider` outlive the allocator.
  CachingAllocator(const AllocatorConfig& config, const VersionProfile& profile,
                   SegmentProvider& provider);
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // --- requests -------------------------------------------------------------------------------
  MallocResult malloc(uint64_t requested, uint64_t stream = 0);
  FreeOutcome free(uint64_t address);
  // The same without the address look-up; `block` comes from a MallocResult and is allocated.
  FreeOutcome free_block(BlockIndex block);
  // False: no allocated block starts at `address`.
  bool record_stream(uint64_t address, uint64_t stream);
  // torch.cuda.empty_cache(); a pool: only that private pool (2.8 on).
  EmptyCacheOutcome empty_cache(PoolId pool = {});

  // --- events: when work on other streams is done -----------------------------------------------
  // Work is submitted to `stream`: events recorded on it from now on wait for complete(stream).
  void work(uint64_t stream);
  // All work on `stream` so far is done. Noticed, as in PyTorch, by the next malloc or flush.
  void complete(uint64_t stream);
  // For replays that know when a block came back but not which streams held it: frees the block as
  // if another stream used it until complete_block(), or a flush, comes first.
  FreeOutcome free_pending(BlockIndex block);
  // Its use has ended. False: `block` no longer waits (a flush was first). `generation` is that of
  // the block when it was freed.
  bool complete_block(BlockIndex block, uint32_t generation);
  // What the start of every malloc does: frees the blocks whose events are done.
  void process_events();

  // --- settings -------------------------------------------------------------------------------
  // torch.cuda.set_per_process_memory_fraction; false: outside [0, 1].
  bool set_memory_fraction(double fraction);
  // torch.cuda.memory._set_allocator_settings, already parsed.
  void set_config(const AllocatorConfig& config) { config_ = config; }
  const AllocatorConfig& config() const { return config_; }
  const VersionProfile& profile() const { return profile_; }

  // --- private pools --------------------------------------------------------------------------
  // Opens a scope: requests on `stream` (all streams if none is named) go to pool `id`, which is
  // created or gets one more user.
  void begin_pool(PoolId id, std::optional<uint64_t> stream = std::nullopt);
  // Closes the newest open scope of the pool. False: there is none.
  bool end_pool(PoolId id);
  // One user less; without users its free segments go back with the next flush. False: unknown.
  bool release_pool(PoolId id);
  struct PoolTraits {
    bool use_on_oom = false;  // 2.8 on
    bool no_split = false;    // 2.10 on
  };
  void create_pool(PoolId id, PoolTraits traits);
  bool scope_open() const { return !scopes_.empty(); }

  // --- answers --------------------------------------------------------------------------------
  const DeviceStats& stats() const { return stats_; }
  void reset_peak_stats() { stats_.reset_peaks(); }
  void reset_accumulated_stats() { stats_.reset_accumulated(); }
  // Sorted by address, as in snapshots. Leaves no `snapshot` trace entry.
  std::vector<SegmentSnapshot> segments() const;
  const BlockTable& blocks() const { return blocks_; }
  // The allocated block that starts at `address`, or kNone.
  BlockIndex find(uint64_t address) const { return blocks_.find_allocated(address); }
  PoolKind pool_kind(BlockIndex block) const;
  uint64_t stream_of(BlockIndex block) const;
  const OomFacts& last_oom() const { return last_oom_; }
  std::string_view last_error() const { return last_error_; }
  // nullptr: nobody listens. The observer outlives the allocator or is taken off.
  void set_observer(TraceObserver* observer) { observer_ = observer; }

  // --- pure rules, also for reports -------------------------------------------------------------
  uint64_t round_size(uint64_t requested) const;
  uint64_t segment_size(uint64_t rounded) const;

 private:
  AllocatorConfig config_;
  const VersionProfile& profile_;
  SegmentProvider& provider_;
  TraceObserver* observer_ = nullptr;
  DeviceStats stats_;
  BlockTable blocks_;
  OomFacts last_oom_;
  std::string_view last_error_;
  struct Scope {
    PoolId pool;
    std::optional<uint64_t> stream;
  };
  std::vector<Scope> scopes_;  // oldest first
};

}  // namespace fragscope::model
