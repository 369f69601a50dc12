// Rounding of requests and sizes of segments: pure functions of the request, the settings and the
// release. All sizes in bytes.
#pragma once

#include <cstdint>
#include <optional>

#include "model/allocator_config.h"
#include "model/version_profile.h"

namespace fragscope::model {

inline constexpr uint64_t kMinBlockSize = 512;         // blocks are multiples of it
inline constexpr uint64_t kSmallSize = 1 * kMiB;       // largest request of the small pool
inline constexpr uint64_t kSmallBuffer = 2 * kMiB;     // segment, and page, of the small pool
inline constexpr uint64_t kMinLargeAlloc = 10 * kMiB;  // from here on segments follow the request
inline constexpr uint64_t kRoundLarge = 2 * kMiB;      // in this unit

// The largest request that is rounded: PyTorch refuses more in advance, and so do all callers.
// Nothing overflows up to here.
inline constexpr uint64_t kMaxRequest = (uint64_t{1} << 60) - 1;

// Are there roundup_power2_divisions? Without them round_request() is round_plainly().
bool has_divisions(const AllocatorConfig& config);
inline uint64_t round_plainly(uint64_t requested) {
  return (requested + (kMinBlockSize - 1)) / kMinBlockSize * kMinBlockSize;
}

// Size of the block that a request needs (round_size). `requested`: 1 to kMaxRequest.
uint64_t round_request(uint64_t requested, const AllocatorConfig& config,
                       const VersionProfile& profile);

// Size of a new segment for a rounded request (get_allocation_size).
uint64_t segment_bytes(uint64_t rounded, const AllocatorConfig& config);

// A count of bytes, at most what 64 bits hold.
uint64_t saturated_bytes(double bytes);

// expandable_segments_reserve in bytes, for a device of `total` bytes.
std::optional<uint64_t> expandable_cap(const AllocatorConfig& config, uint64_t total);

// Growth unit of an expandable segment, and the address space that it reserves on a device of
// `total` bytes: 9/8 of it, or less if the settings cap it.
uint64_t expandable_page(const AllocatorConfig& config, bool small);
uint64_t expandable_range_bytes(const AllocatorConfig& config, bool small, uint64_t total);

}  // namespace fragscope::model
