#include "model/rounding.h"

#include <algorithm>
#include <bit>

namespace fragscope::model {
namespace {

// Entry of the roundup table for the raw request.
uint64_t divisions_for(uint64_t requested, const AllocatorConfig& config) {
  const int log2 = 63 - std::countl_zero(requested);
  const int entry = std::clamp(log2 - 20, 0, static_cast<int>(kRoundupEntries) - 1);
  return config.roundup_power2_divisions[static_cast<size_t>(entry)];
}

// `size` rounded up to the next of `divisions` steps between two powers of two. Divisions of 2^55
// and more have no step: 512 times them has wrapped to 0, and what is left is the next power of
// two.
uint64_t next_division(uint64_t size, uint64_t divisions) {
  if (divisions <= 1 || std::has_single_bit(size)) return size;
  const uint64_t floor = std::bit_floor(size);
  const uint64_t step = floor >> (63 - std::countl_zero(divisions));
  if (step == 0) return floor << 1;
  const uint64_t low = size & ~(step - 1);
  return low == size ? size : low + step;
}

}  // namespace

bool has_divisions(const AllocatorConfig& config) {
  const auto& all = config.roundup_power2_divisions;
  return std::any_of(all.begin(), all.end(), [](uint64_t divisions) { return divisions != 0; });
}

uint64_t round_request(uint64_t requested, const AllocatorConfig& config,
                       const VersionProfile& profile) {
  if (requested < kMinBlockSize) return kMinBlockSize;
  const uint64_t divisions = divisions_for(requested, config);
  const uint64_t least = profile.one_division_keeps_size ? 1 : 2;
  if (divisions >= least && requested > kMinBlockSize * divisions) {
    return next_division(requested, divisions);
  }
  return round_up(requested, kMinBlockSize);
}

uint64_t segment_bytes(uint64_t rounded, const AllocatorConfig& config) {
  if (rounded <= kSmallSize) return kSmallBuffer;
  if (rounded < kMinLargeAlloc) return config.large_segment_size;
  return round_up(rounded, kRoundLarge);
}

uint64_t expandable_page(const AllocatorConfig& config, bool small) {
  return small ? kSmallBuffer : config.large_segment_size;
}

uint64_t saturated_bytes(double bytes) {
  constexpr double kEnd = 0x1p64;
  return bytes < kEnd ? static_cast<uint64_t>(bytes) : UINT64_MAX;
}

std::optional<uint64_t> expandable_cap(const AllocatorConfig& config, uint64_t total) {
  if (config.reserve_bytes) return config.reserve_bytes;
  if (!config.reserve_fraction) return std::nullopt;
  return saturated_bytes(*config.reserve_fraction * static_cast<double>(total));
}

uint64_t expandable_range_bytes(const AllocatorConfig& config, bool small, uint64_t total) {
  const uint64_t bytes =
      std::min(total + total / 8, expandable_cap(config, total).value_or(UINT64_MAX));
  return round_up(bytes, expandable_page(config, small));
}

}  // namespace fragscope::model
