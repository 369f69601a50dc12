#include "shim/frame_rules.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "shim/eh_frame.h"

namespace fragscope::shim {
namespace {

// One word per address, so that a reader never sees half of one: the address is multiplied by an
// odd number modulo 2^47, which can be undone; the upper bits of the product are the place and the
// lower ones are kept, beside the rule.
//   | tag 34 | kind 3 | CFA offset / 8: 14 | base pointer's offset / 8: 13 |
constexpr unsigned kAddressBits = 47;
constexpr unsigned kSetBits = 13;
constexpr unsigned kTagBits = kAddressBits - kSetBits;
constexpr unsigned kCfaBits = 14;
constexpr unsigned kBpBits = 13;
constexpr unsigned kRuleBits = 64 - kTagBits;
constexpr size_t kWays = 4;
static_assert(kRuleBits == 3 + kCfaBits + kBpBits);

constinit std::atomic<uint64_t> g_rules[(size_t{1} << kSetBits) * kWays]{};

uint64_t scattered(uintptr_t address) {
  constexpr uint64_t kOdd = 0x5851F42D4C957F2Dull;
  return address * kOdd & ((uint64_t{1} << kAddressBits) - 1);
}

constexpr uint64_t low_bits(uint64_t word, unsigned bits) {
  return word & ((uint64_t{1} << bits) - 1);
}

// Larger frames than there is room for are unknown.
uint64_t packed(FrameRule rule) {
  const uint64_t cfa = rule.cfa_offset / 8;
  const uint64_t bp = rule.bp_offset / 8;
  if (cfa >> kCfaBits != 0 || bp >> kBpBits != 0 || (rule.cfa_offset | rule.bp_offset) % 8 != 0) {
    return packed({FrameRule::Kind::unknown, 0, 0});
  }
  return static_cast<uint64_t>(rule.kind) << (kCfaBits + kBpBits) | cfa << kBpBits | bp;
}

FrameRule unpacked(uint64_t word) {
  return {static_cast<FrameRule::Kind>(low_bits(word, kRuleBits) >> (kCfaBits + kBpBits)),
          static_cast<uint32_t>(low_bits(word >> kBpBits, kCfaBits) * 8),
          static_cast<uint32_t>(low_bits(word, kBpBits) * 8)};
}

}  // namespace

FrameRule frame_rule(uintptr_t return_address) noexcept {
  if (return_address >> kAddressBits != 0) return {};
  const uint64_t place = scattered(return_address);
  const uint64_t tag = low_bits(place, kTagBits) << kRuleBits;
  std::atomic<uint64_t>* const set = g_rules + (place >> kTagBits) * kWays;
  for (size_t way = 0; way < kWays; ++way) {
    const uint64_t word = set[way].load(std::memory_order_relaxed);
    if (word == 0) break;
    if ((word ^ tag) >> kRuleBits == 0) return unpacked(word);
  }
  // The newest is first; the oldest of a full set is given up.
  const uint64_t word = tag | packed(read_frame_rule(return_address));
  for (size_t way = kWays - 1; way > 0; --way) {
    set[way].store(set[way - 1].load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  set[0].store(word, std::memory_order_relaxed);
  return unpacked(word);
}

void forget_frame_rules() noexcept {
  for (auto& word : g_rules) word.store(0, std::memory_order_relaxed);
}

}  // namespace fragscope::shim
