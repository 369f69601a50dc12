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

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/allocator_config.h"
#include "model/block.h"
#include "model/free_set.h"
#include "model/pool_map.h"
#include "model/rounding.h"
#include "model/running_stats.h"
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
  uint64_t segment = 0;      // "Tried to allocate"
  uint64_t device_free = 0;  // after the flush
  uint64_t device_total = 0;
  std::optional<uint64_t> allowed;  // limit by the memory fraction, if one is set
  uint64_t allocated = 0;           // "allocated by PyTorch"
  uint64_t private_free = 0;        // free bytes of private pools ("allocated in private pools")
  uint64_t reserved = 0;
};

// State of a private pool, kept to be put back: its segments by address, their blocks by address.
struct CheckpointBlock {
  uint64_t address = 0;
  uint64_t size = 0;
  bool allocated = false;
};
struct PoolCheckpoint {
  PoolId pool;
  std::vector<std::vector<CheckpointBlock>> segments;
};
// Addresses of the blocks that a restored checkpoint took from the client and gave back to it.
struct CheckpointDelta {
  std::vector<uint64_t> freed;
  std::vector<uint64_t> allocated;
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
  // The first `count` events that SegmentProvider::record_event() recorded on `stream` are done.
  void complete_until(uint64_t stream, uint64_t count);
  // How far the work of `stream` is: an event recorded on it now is done when `completed` has
  // reached what `submitted` is.
  struct StreamProgress {
    uint64_t submitted = 0;
    uint64_t completed = 0;
  };
  StreamProgress stream_progress(uint64_t stream) const;
  // For replays that know when a block came back but not which streams held it: frees the block as
  // if another stream used it until complete_block(), or a flush, comes first.
  FreeOutcome free_pending(BlockIndex block);
  // Its use has ended. False: `block` no longer waits (a flush was first). `generation` is
  // blocks().generation(block), read right after free_pending().
  bool complete_block(BlockIndex block, uint32_t generation);
  // What the start of every malloc does: frees the blocks whose events are done.
  void process_events();
  // Blocks wait for events or for the end of a scope.
  bool events_outstanding() const { return outstanding_ != 0 || !deferred_.empty(); }

  // --- settings -------------------------------------------------------------------------------
  // torch.cuda.set_per_process_memory_fraction; false: outside [0, 1].
  bool set_memory_fraction(double fraction);
  // torch.cuda.memory._set_allocator_settings, already parsed.
  void set_config(const AllocatorConfig& config) {
    config_ = config;
    note_rules();
  }
  const AllocatorConfig& config() const { return config_; }
  const VersionProfile& profile() const { return profile_; }

  // --- private pools --------------------------------------------------------------------------
  // Opens a scope: requests on `stream` (all streams if none is named) go to pool `id`, which is
  // created or gets one more user. False: a scope of that pool is open already, or the pool lost
  // its last user and waits for a flush; see last_error().
  bool begin_pool(PoolId id, std::optional<uint64_t> stream = std::nullopt);
  // The newest open scope of the pool takes the requests on `stream` (all streams: none named) from
  // now on. For owners who decide request by request. False: there is none.
  bool aim_scope(PoolId id, std::optional<uint64_t> stream);
  // Closes the newest open scope of the pool. False: there is none; see last_error().
  bool end_pool(PoolId id);
  // One user less; without users its free segments go back with the next flush. False: there is no
  // such pool or no user; see last_error().
  bool release_pool(PoolId id);
  struct PoolTraits {
    bool use_on_oom = false;  // 2.8 on
    bool no_split = false;    // 2.10 on
  };
  // False: the pool lost its last user; see last_error().
  bool create_pool(PoolId id, PoolTraits traits);
  // A graph capture of the current stream. From 2.13 on only a capture, not a mere scope, holds
  // events and the flush back. False: one is under way, or none.
  bool begin_capture() { return !std::exchange(capturing_, true); }
  bool end_capture() { return std::exchange(capturing_, false); }

  // Graph trees (torch.compile, "reduce-overhead"). nullopt, false: see last_error(). A pool whose
  // segments are no longer what they were cannot be put back; PyTorch then leaves it half done, as
  // undefined_in_library() says. Blocks that were taken by the failed attempt are in `delta`, too.
  std::optional<PoolCheckpoint> checkpoint(PoolId id);
  bool restore_checkpoint(const PoolCheckpoint& state, CheckpointDelta& delta);

  // --- a given state --------------------------------------------------------------------------
  // Puts a fresh allocator into the state of `segments`, in the order of their creation; mapped
  // ranges of one expandable segment by address. Free neighbours are joined; active blocks become
  // allocated ones (what waits for streams is then given to free_pending()). Private pools get one
  // user. Where an expandable segment's address space begins is not in a snapshot: with its lowest
  // mapped byte. Statistics count the state as allocated. False: the blocks of a segment do not
  // fill it, nothing happened.
  bool restore(std::span<const SegmentSnapshot> segments);

  // --- a limit that is not known ----------------------------------------------------------------
  // For replays: the program has a memory fraction that nobody tells. The ages of free blocks are
  // counted as with one, and garbage is collected when the recording has it.
  void count_ages() { ages_counted_ = true; }
  // What a collection of so many bytes gives back, in order.
  std::vector<BlockIndex> garbage(uint64_t bytes) const;
  void collect_garbage(uint64_t bytes);

  // --- memory beside the cache ----------------------------------------------------------------
  // What the caller serves by itself: a segment (`now`: its bytes, 0: none) and the blocks in them,
  // freed and, when the streams that used them are done, completed. It counts in the statistics,
  // as of the large pool, and in last_oom(), and decides nothing here.
  void set_outside_reserved(uint64_t now);
  void begin_outside_block(uint64_t size, uint64_t requested);
  void free_outside_block(uint64_t size);
  void complete_outside_block(uint64_t size, uint64_t requested);
  // The newest failure is not the program's yet: another attempt follows.
  void retract_oom() { --stats_.num_ooms; }

  // --- answers --------------------------------------------------------------------------------
  // Valid until the next call of it.
  const DeviceStats& stats() const {
    running_.tell(stats_);
    return stats_;
  }
  // The same levels without the rest.
  uint64_t allocated_bytes() const { return running_.allocated_bytes(); }
  uint64_t reserved_bytes() const {
    return static_cast<uint64_t>(stats_.reserved_bytes.all.current);
  }
  void reset_peak_stats() {
    stats_.reset_peaks();
    running_.reset_peaks();
  }
  void reset_accumulated_stats() {
    stats_.reset_accumulated();
    running_.reset_accumulated();
  }
  // Sorted by address, as in snapshots. Leaves no `snapshot` trace entry.
  std::vector<SegmentSnapshot> segments() const;
  const BlockTable& blocks() const { return blocks_; }
  // Bytes of memory that the model's books of blocks take, free and allocated ones.
  size_t book_bytes() const {
    size_t bytes = blocks_.bytes() + arenas_.capacity() * sizeof(Arena);
    bytes += ranges_.capacity() * sizeof(Range);
    for (const BlockPool& pool : pools_) bytes += pool.arenas.capacity() * sizeof(uint32_t);
    for (const Arena& arena : arenas_) {
      bytes += arena.free.bytes() + arena.unmapped.capacity() * sizeof(BlockIndex);
    }
    return bytes;
  }
  // The allocated block that starts at `address`, or kNone.
  BlockIndex find(uint64_t address) const { return blocks_.find_allocated(address); }
  PoolKind pool_kind(BlockIndex block) const;
  uint64_t stream_of(BlockIndex block) const;
  const OomFacts& last_oom() const { return last_oom_; }
  std::string_view last_error() const { return last_error_; }
  // Expandable segments in private pools, of which PyTorch counts mapped and unmapped pieces
  // differently: it has dropped a pool that still has blocks and reads freed memory, or has failed
  // an assertion in the middle of a flush. From there on the model's answers are one possibility.
  bool undefined_in_library() const { return library_undefined_; }
  // nullptr: nobody listens. The observer outlives the allocator or is taken off.
  void set_observer(TraceObserver* observer) { observer_ = observer; }

  // --- pure rules, also for reports -------------------------------------------------------------
  uint64_t round_size(uint64_t requested) const;
  uint64_t segment_size(uint64_t rounded) const;
  std::optional<uint64_t> allowed_bytes() const { return allowed_; }  // by the memory fraction

 private:
  friend class InvariantCheck;

  struct BlockPool {
    PoolKind kind = PoolKind::kSmall;
    uint32_t owner = kNone;        // private pool
    uint32_t calls = 0;            // searches while garbage collection is on
    std::vector<uint32_t> arenas;  // by stream handle
  };
  struct Arena {  // one stream of one pool
    uint64_t stream = 0;
    uint32_t pool = kNone;
    uint32_t index{};                  // of this arena
    PoolKind kind = PoolKind::kSmall;  // the pool's
    FreeSet free;
    std::vector<BlockIndex> unmapped;  // by address
  };
  struct PrivatePool {
    PoolId id;
    bool alive = false;
    int64_t uses = 0;
    uint64_t segments = 0;  // segments and mapped pieces it holds
    uint32_t small = kNone;
    uint32_t large = kNone;
    PoolTraits traits;
  };
  struct Range {  // an expandable segment
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint64_t page = 0;
    bool alive = false;
  };
  struct Scope {
    PoolId pool;
    std::optional<uint64_t> stream;
  };
  struct StreamUse {
    uint64_t stream = 0;
    bool under_scope = false;
  };
  struct PendingEvent {
    uint64_t position = 0;  // of the stream's work
    BlockIndex block = kNone;
  };
  struct StreamWork {
    uint64_t stream = 0;
    uint64_t submitted = 0;
    uint64_t completed = 0;
    std::deque<PendingEvent> events;
  };
  struct Hold {
    BlockIndex block = kNone;
    uint32_t generation = 0;
  };
  struct Request {
    uint64_t requested = 0;
    uint64_t rounded = 0;
    uint64_t segment = 0;  // once the free blocks have been searched
    uint64_t stream = 0;
    uint32_t arena = kNone;
    bool expandable = false;
    std::optional<bool> split;  // decided in advance
  };
  enum class Attempt : uint8_t { kGot, kFailed, kRejected, kError };  // kError: last_error_
  enum class Release : uint8_t { kReleased, kNothing, kAssertion };

  // Requests (caching_allocator.cpp)
  void note_rules();
  MallocResult malloc_by_rules(uint64_t requested, uint64_t stream);
  Request make_request(uint64_t requested, uint64_t stream);
  BlockIndex find_free(const Request& request);
  BlockIndex skip_expandable(const FreeSet& set, BlockIndex at, const Request& request) const;
  bool refuses_oversize(uint64_t rounded, uint64_t block_size) const;
  MallocResult malloc_uncached(Request& request);
  MallocResult finish_malloc(const Request& request, BlockIndex found);
  bool should_split(const Request& request, const Block& block) const;
  BlockIndex take_front(Arena& arena, FreeSet::Found found, uint64_t size);
  void take_whole(Arena& arena, FreeSet::Found found);
  MallocResult hand_out(const Arena& arena, BlockIndex taken, uint64_t requested);
  Attempt new_segment(const Request& request, bool retry, BlockIndex& found);
  BlockIndex device_segment(const Request& request);
  MallocResult out_of_memory(const Request& request);
  MallocResult reject(const Request& request);
  void fill_oom_facts(const Request& request);
  void start_free(Block& block);
  FreeOutcome go_on_free(BlockIndex index);
  FreeOutcome wait_for_streams(BlockIndex index);
  void start_wait(BlockIndex index);
  void finish_wait(BlockIndex index);
  void give_back(BlockIndex index, Arena& arena);
  BlockIndex if_free(BlockIndex neighbour) const {
    return neighbour != kNone && blocks_[neighbour].free ? neighbour : kNone;
  }
  bool can_join(BlockIndex index, BlockIndex neighbour) const;
  void merge(BlockIndex into, BlockIndex from);

  // Release (allocator_release.cpp)
  void collect_garbage();
  Release release_oversize(const Request& request);
  void release_cached(PoolId id);
  void release_pool_blocks(uint32_t pool);
  bool has_blocks(uint32_t pool) const;
  void release_private(uint32_t index);
  void release_segment(BlockIndex index);

  // Checkpoints of pools (allocator_checkpoint.cpp)
  const PrivatePool* pool_to_checkpoint(PoolId id);
  std::vector<BlockIndex> first_blocks(const PrivatePool& pool) const;
  void free_all(const PrivatePool& pool, CheckpointDelta& delta);
  bool put_back(const std::vector<CheckpointBlock>& blocks, BlockIndex at, CheckpointDelta& delta);
  bool free_unheld(const std::vector<CheckpointBlock>& blocks, const std::vector<BlockIndex>& taken,
                   CheckpointDelta& delta);

  // Expandable segments (allocator_expandable.cpp)
  BlockIndex take_expandable(const Request& request);
  BlockIndex find_expandable(const Request& request);
  BlockIndex new_range(const Request& request);
  bool is_available(BlockIndex index) const;
  bool map_block(BlockIndex index, uint64_t size);
  void unmap_block(BlockIndex index);
  BlockIndex piece_of(BlockIndex whole, uint64_t address, uint64_t size, bool mapped);
  void release_range(BlockIndex index);
  void link_after(BlockIndex index, BlockIndex piece);
  void link_before(BlockIndex index, BlockIndex piece);
  void insert_unmapped(BlockIndex index);
  void erase_unmapped(BlockIndex index);

  // A given state (allocator_restore.cpp)
  uint32_t restored_arena(const SegmentSnapshot& segment);
  BlockIndex restore_blocks(const SegmentSnapshot& segment, uint32_t arena, uint32_t range,
                            BlockIndex previous, uint32_t number);
  void restore_mapped(const SegmentSnapshot& segment, uint32_t arena);
  BlockIndex restored_range(const SegmentSnapshot& segment, uint32_t arena);

  // Events (allocator_events.cpp)
  StreamWork& stream_work(uint64_t stream);
  void insert_events(BlockIndex index);
  void insert_deferred_events();
  void finish_event(BlockIndex index);
  void synchronize_events(uint32_t private_pool);
  void synchronize_stream(uint64_t stream);
  void synchronize_holds(uint32_t private_pool);
  bool is_held(const Hold& hold) const;
  bool belongs_to(BlockIndex index, uint32_t private_pool) const;

  // Pools (allocator_pools.cpp)
  uint32_t make_pool(PoolKind kind, uint32_t owner);
  uint32_t arena_of(uint32_t pool, uint64_t stream) {
    const std::vector<uint32_t>& arenas = pools_[pool].arenas;
    // tuning: most programs have one stream
    if (!arenas.empty() && arenas_[arenas.front()].stream == stream) return arenas.front();
    return find_arena(pool, stream);
  }
  uint32_t find_arena(uint32_t pool, uint64_t stream);
  uint32_t pool_for(uint64_t rounded, uint64_t stream) const;
  uint32_t find_private(PoolId id) const;
  PrivatePool& make_private(PoolId id);  // with one user
  PrivatePool* add_user(PoolId id);      // makes the pool if there is none; null: see last_error()
  Attempt try_fallback(Request& request, BlockIndex& found);
  bool has_scope(PoolId id) const;
  bool scope_blocks() const;
  uint64_t private_free_bytes() const;
  void count_reserved(uint32_t pool, uint64_t grown, uint64_t shrunk);
  PoolStat& private_pool_bytes(PoolId id);

  const BlockPool& pool_of(const Block& block) const { return pools_[arenas_[block.arena].pool]; }
  BlockPool& pool_of(const Block& block) { return pools_[arenas_[block.arena].pool]; }
  void insert_free(BlockIndex index);
  void erase_free(BlockIndex index) {
    arenas_[blocks_[index].arena].free.erase(blocks_.slab(), index);
  }
  // Creation numbers: of a new segment, of a block that is split off.
  uint32_t segment_number() { return profile_.tie == TieRule::kAddress ? 0 : next_number_++; }
  uint32_t number_for_new(uint32_t inherited) {
    return profile_.tie == TieRule::kBlockNumber ? next_number_++ : inherited;
  }
  bool collects_garbage() const {
    return allowed_.has_value() && config_.garbage_collection_threshold > 0;
  }
  bool counts_ages() const {
    return (allowed_.has_value() || ages_counted_) && config_.garbage_collection_threshold > 0;
  }
  // Of the cache.
  uint64_t reserved() const {
    return static_cast<uint64_t>(stats_.reserved_bytes.all.current) - outside_reserved_;
  }
  void trace(TraceAction action, const Block& block, uint64_t size) {
    if (observer_ != nullptr) [[unlikely]]
      tell(action, block, size);
  }
  void tell(TraceAction action, const Block& block, uint64_t size);

  AllocatorConfig config_;
  const VersionProfile& profile_;
  SegmentProvider& provider_;
  TraceObserver* observer_ = nullptr;
  mutable DeviceStats stats_;  // what running_ keeps is brought up to date by stats()
  RunningStats running_;
  BlockTable blocks_;
  std::vector<BlockPool> pools_;
  std::vector<Arena> arenas_;
  std::vector<PrivatePool> private_pools_;
  PoolMap freeable_;  // private pools without users
  std::vector<Range> ranges_;
  std::vector<Scope> scopes_;  // oldest first
  std::vector<StreamWork> stream_work_;
  std::vector<BlockIndex> deferred_;  // freed under a scope
  std::vector<Hold> holds_;           // free_pending()
  std::vector<Hold> ended_holds_;     // complete_block()
  std::unordered_map<BlockIndex, std::vector<StreamUse>> uses_;
  std::optional<uint64_t> allowed_;  // bytes, by the memory fraction
  uint32_t next_number_ = 0;
  uint64_t outside_reserved_ = 0;
  uint64_t outstanding_ = 0;  // events and holds
  OomFacts last_oom_;
  std::string_view last_error_;
  bool library_undefined_ = false;
  // What the settings come to, see note_rules().
  bool rounds_plainly_ = true;            // to the next multiple of the smallest block
  bool plain_ = true;                     // and no setting has a say in which free block is taken
  std::array<uint64_t, 2> least_rest_{};  // by PoolKind: from here on a rest is split off
  bool counts_calls_ = false;             // a pool's call counter is not 0
  // Of the default pools, by PoolKind: the arena that was asked for last.
  struct RecentArena {
    uint64_t stream = 0;
    uint32_t arena = kNone;
  };
  std::array<RecentArena, 2> recent_;
  bool capturing_ = false;
  bool ages_counted_ = false;
};

}  // namespace fragscope::model
