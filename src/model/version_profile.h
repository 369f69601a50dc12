// What differs between PyTorch releases in the CUDA caching allocator, as data: one profile per
// release 2.0 … 2.15. Every rule that changed is a field; code never compares release numbers.
//
// Source of facts: c10/cuda/CUDACachingAllocator.cpp, CUDAAllocatorConfig.cpp and
// c10/core/AllocatorConfig.cpp of the releases, and runs of the released libraries.
// Threads: the table is constant.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"

namespace fragscope::model {

// Which of two equally large free blocks of a stream comes first.
enum class TieRule : uint8_t {
  kAddress,        // the lower address (up to 2.11)
  kBlockNumber,    // the block object created first (2.12)
  kSegmentNumber,  // the segment created first, then the lower address (2.13 on)
};

// When blocks of `use_on_oom` pools are tried for a request to a default pool.
enum class FallbackRule : uint8_t { kNone, kAfterFlush, kBeforeRelease };

// What an open pool scope (a capture or a MemPool scope) does to the rest of the device.
enum class ScopeRule : uint8_t {
  kAnyScopeBlocks,    // event processing and the flush are off while any scope is open (up to 2.12)
  kOnlyCaptureBlocks  // only while the current stream really captures (2.13 on)
};

// empty_cache() while a scope blocks the flush.
enum class ScopedEmptyCache : uint8_t {
  kAssertion,      // an internal assertion fails (up to 2.7)
  kFreeablePools,  // only private pools without users are released (2.8 on)
};

enum class ConfigGrammar : uint8_t {
  kLexer,      // 2.0 … 2.9: strict separators, errors of type Error
  kTokenizer,  // 2.10 on: separators are not checked, errors of type ValueError
};

// How the pinned host allocator looks for a free block.
enum class HostSearch : uint8_t {
  kSmallestThatFits,  // one set by size and address, searched for the unrounded size (up to 2.4)
  kNewestOfBucket,    // the last freed block of the bucket, whatever its size (2.5 … 2.13)
  kNewestThatFits,    // the last freed one of the bucket that is large enough (2.14)
};

// What a request that finds no block does with `pinned_use_background_threads`.
enum class HostBackground : uint8_t {
  kNone,         // no such option (up to 2.5)
  kAsksPending,  // asks the events of pending blocks of its size, then starts the thread (to 2.9)
  kStartsThread  // only starts the thread (2.10 on)
};

// The form of host_memory_stats().
enum class HostStatsForm : uint8_t {
  kNone,      // no such statistics (up to 2.7)
  kSegments,  // allocation, allocated_bytes, segment, reserved_bytes (2.8, 2.9)
  kActive,    // active_requests, active_bytes, allocations, allocated_bytes (2.10 on)
};

// The split rule of large blocks. Everything but kReleased exists so that tests can prove that a
// wrong rule is noticed.
enum class SplitRule : uint8_t {
  kReleased,           // remaining > 1 MiB
  kMutatedAtOneMiB,    // remaining >= 1 MiB
  kMutatedNeverLarge,  // large blocks are never split
};

struct VersionProfile {
  std::string_view name;  // "2.15"
  int minor = 15;         // of release 2.<minor>

  TieRule tie = TieRule::kSegmentNumber;
  SplitRule split_rule = SplitRule::kReleased;
  ConfigGrammar grammar = ConfigGrammar::kTokenizer;

  // Rounding
  bool one_division_keeps_size = false;  // up to 2.3: divisions 1 leaves sizes above 512 unrounded
  bool roundup_zero_in_list = true;      // list values may be 0 (2.4 on)

  // Options and their limits
  bool has_expandable = true;          // 2.1
  bool has_register_options = true;    // release_lock_…, pinned_use_…, …_threads: 2.2
  bool has_background_threads = true;  // 2.6
  bool has_non_split_rounding = true;  // 2.6
  bool has_capture_reuse = true;       // 2.9
  bool has_large_segment_size = true;  // 2.11
  bool has_throw_on_oom = true;        // 2.12, with pinned_free_catch_all
  bool has_pinned_limits = true;       // 2.13
  bool has_expandable_reserve = true;  // 2.15
  bool has_generic_variable = true;    // PYTORCH_ALLOC_CONF is read: 2.10
  bool exclusive_minimum = false;      // max_split must be > 20 instead of >= 20 (up to 2.9)

  // Memory fraction
  bool full_fraction_is_unset = true;  // fraction >= 1 clears the limit (2.10 on)

  // Expandable segments
  bool expandable_in_private_pools = true;  // 2.5
  bool expandable_split_by_option = false;  // split at 512 bytes by the option, not the request
                                            // (up to 2.9)
  bool range_holds_request = true;  // else a range is left behind for a request larger than it
                                    // (up to 2.14)
  bool expandable_release_asserts = false;  // the oversize release trips over them (up to 2.4)

  // Scopes and private pools
  ScopeRule scope = ScopeRule::kOnlyCaptureBlocks;
  ScopedEmptyCache scoped_empty_cache = ScopedEmptyCache::kFreeablePools;
  bool newest_scope_first = true;         // 2.10
  bool scope_by_stream = false;           // a map from stream to pool (up to 2.2)
  bool scope_drops_uses = true;           // uses recorded under a scope end with it (2.4 on)
  bool checkpoint_records_events = true;  // of what was freed under a scope (2.4 on)
  FallbackRule fallback = FallbackRule::kBeforeRelease;
  bool has_no_split_pools = true;  // 2.10

  // Statistics
  bool has_device_alloc_counters = true;  // num_sync_all_streams, num_device_alloc/free: 2.3
  bool has_rejection_counter = true;      // num_oom_rejections: 2.12
  bool has_private_pool_bytes = true;     // reserved_bytes_by_private_pools: 2.13

  // Pinned host memory
  HostSearch host_search = HostSearch::kNewestThatFits;
  HostBackground host_background = HostBackground::kStartsThread;
  HostStatsForm host_stats = HostStatsForm::kActive;
  bool host_free_counts = true;  // a free without events lowers active_… (not 2.10 … 2.12)
  bool host_event_counts_size = true;  // the end of its events lowers active_bytes by the block's
                                       // size, not by -1 (2.13)
  bool has_host_pools = true;          // private pools, for graphs (2.12 on)
  bool host_pool_buckets = true;       // statistics by bucket are kept per pool (2.15)
  bool host_flush_ends_events = true;  // of private pools; fails over them in 2.13, 2.14

  bool operator==(const VersionProfile&) const = default;
};

// All profiles, oldest first; the last one is the newest.
std::span<const VersionProfile> version_profiles();

struct ProfileMatch {
  const VersionProfile* profile;  // never null
  bool exact;                     // false: `text` names no known release, the newest was taken
};
// "2.6", "2.6.1", "2.6.0+cu124" -> 2.6.
ProfileMatch find_version_profile(std::string_view text);

// The same for a release that a user asks for by name. kInvalidArgument, naming the known range:
// `text` is older than every known release, or names none at all. A newer one is no error: the
// newest profile, not exact.
Result<ProfileMatch> asked_version_profile(std::string_view text);

inline const VersionProfile& version_profile(std::string_view text) {
  return *find_version_profile(text).profile;
}

}  // namespace fragscope::model
